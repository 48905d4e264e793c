import asyncio
import os

import pytest

from deputy.engine.ports import ToolContext
from deputy.tools.glob import glob_tool
from deputy.tools.grep import grep_tool
from deputy.tools.workspace import Workspace

HOSTILE_NAMES = [
    "new\nline.txt", "esc\x1b[31mred.txt",
    "-rf", "--help", "-e", "a:1:b", "tab\there", "\u202etxt.exe", " lead", "trail ",
    "quote'\"", "$(id)", "`id`", "*", "[a]", "{a,b}", "\\back", "!bang", "#hash", "\r\n",
]  # fmt: skip

EVIL_PATTERNS = [
    "(a+)+$", "(a*)*b", "(a|a)*b", "(a|aa)+$", "(.*a){30}", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y",
    "(?:a?){40}a{40}",
    "(\\w+\\s?)*!", "([a-zA-Z]+)*$", "(a{1,50}){1,50}b", "(.*?,){20}P",
]  # fmt: skip

BAD_PATTERNS = ["(", "[", "a{2,1}", "\\", "(?<=a)b", "(a)\\1", "(a{1000}){1000}", "(?P<n>a", "*", "a\nb", "\\p{Nope}"]


@pytest.fixture
def grep(workspace):
    return grep_tool(workspace)


def test_matches_have_path_line_and_text_in_the_order_of_paths(root, grep, call):
    (root / "b.py").write_text("x = 1\nneedle = 2\n")
    (root / "a").mkdir()
    (root / "a/z.py").write_text("needle\nother\nneedle\n")
    assert call(grep, pattern="needle").text == "a/z.py:1:needle\na/z.py:3:needle\nb.py:2:needle = 2"
    assert call(grep, pattern="needle", path="b.py").text == "b.py:2:needle = 2"
    assert call(grep, pattern="needle", output="files").text == "a/z.py\nb.py"
    assert call(grep, pattern="needle", path="b.py", output="files").text == "b.py"
    assert call(grep, pattern="NEEDLE", ignore_case=True, glob="b*").text == "b.py:2:needle = 2"
    assert call(grep, pattern="needle = ", literal=True, context=1).text == "b.py-1-x = 1\nb.py:2:needle = 2"
    nothing = call(grep, pattern="nothing like it")
    assert nothing.text.startswith("No matches. ")
    assert nothing.is_our_own


def test_the_limit_is_kept_and_told(root, grep, call):
    (root / "many.txt").write_text("needle\n" * 5000)
    shown = call(grep, pattern="needle", limit=7).text.splitlines()
    assert len(shown) == 8
    assert shown[-1].startswith("[more results than the limit")
    cut = call(grep, pattern="needle", limit=1000, output_bytes=500).text
    assert len(cut.encode()) < 800
    assert "[cut here:" in cut


def test_ignore_files_hold_unless_told_otherwise(root, grep, call):
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    (root / "build/out.txt").write_text("needle\n")
    assert call(grep, pattern="needle").text.startswith("No matches. ")
    assert call(grep, pattern="needle", include_ignored=True).text == "build/out.txt:1:needle"


def test_long_lines_are_shown_around_the_match(root, grep, call):
    (root / "min.js").write_text("x" * 50_000 + "needle" + "y" * 50_000)
    (root / "one.js").write_text("x" * 5_000_000 + "needle")
    shown = call(grep, pattern="needle", path="min.js").text
    assert "xneedley" in shown
    assert len(shown) < 600
    assert call(grep, pattern="needle", path="one.js").text == "one.js: [match in a line that is too long to show]"


def test_binary_files_and_fifos_are_passed_over(root, grep, call):
    (root / "data.bin").write_bytes(b"\0\1\2needle\0")
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    (root / "zero").symlink_to("/dev/zero")
    (root / "text").write_bytes(b"needle caf\xe9\n")
    assert call(grep, pattern="needle").text == "text:1:needle caf�"


@pytest.mark.rule("workspace")
def test_hostile_names_stay_on_their_line(root, grep, call, workspace):
    for name in HOSTILE_NAMES:
        (root / name).write_text("needle\n")
    (root / os.fsdecode(b"bad\xff.txt")).write_text("needle\n")
    found = call(grep, pattern="needle").text.split("\n")
    assert len(found) == len(HOSTILE_NAMES) + 1
    assert all(line.isprintable() and line.endswith(":1:needle") for line in found)
    listed = call(glob_tool(workspace), pattern="*").text.split("\n")
    assert len(listed) == len(HOSTILE_NAMES) + 1
    assert all(line.isprintable() for line in listed)
    for name in HOSTILE_NAMES:
        assert call(grep, pattern="needle", path=name).text.endswith(":1:needle")


@pytest.mark.parametrize("pattern", EVIL_PATTERNS)
def test_patterns_that_explode_elsewhere_are_linear_here(root, grep, call, pattern):
    (root / "a.txt").write_text(("a" * 60 + "!\n") * 2000 + "x" * 100_000)
    assert not call(grep, pattern=pattern, output="files").is_error


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_a_bad_pattern_is_an_error_that_says_why(root, grep, call, pattern):
    (root / "a.txt").write_text("a")
    answer = call(grep, pattern=pattern)
    assert answer.is_error
    assert "rg: " in answer.text
    assert answer.text.endswith("\nCorrect the pattern.")


@pytest.mark.parametrize(
    "pattern",
    ["--files", "-e", "--pre=cat", "--help", "-f/etc/passwd", "--", "-", "--search-zip", "-uuu", "@/etc/passwd"],
)
def test_a_pattern_is_never_an_option(root, grep, call, pattern):
    (root / "a.txt").write_text(f"<{pattern}>\n")
    assert call(grep, pattern=pattern).text == f"a.txt:1:<{pattern}>"
    assert not call(grep, pattern="x", glob=pattern.replace("@/", "")).is_error


def test_nul_characters_are_refused(grep, call):
    assert call(grep, pattern="a\0b").is_error
    assert call(grep, pattern="a", glob="\0").is_error


def test_the_environment_cannot_configure_the_search(root, grep, call, tmp_path, monkeypatch):
    (tmp_path / "rc").write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    (root / "a.txt").write_text("yes\nno\n")
    assert call(grep, pattern="yes").text == "a.txt:1:yes"


def test_a_cancelled_search_leaves_no_process(root, workspace, children, until):
    for number in range(4):
        (root / f"{number}.txt").write_text(("word " * 20_000 + "\n") * 150)

    async def cancel_while_it_runs():
        call = asyncio.ensure_future(grep_tool(workspace).run({"pattern": r"(\w+ ){300}x"}, ToolContext()))
        await until(children)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel_while_it_runs())
    assert not children()


def test_missing_places_are_named(grep, call, workspace):
    assert call(grep, pattern="x", path="nowhere").text == "nowhere does not exist."
    assert call(glob_tool(workspace), pattern="*", path="nowhere").is_error


def test_a_search_without_a_match_says_where_there_are_matches(root, workspace, call):
    (root / "a.toml").write_text('currency = "CHF"\nport = 1\n')
    (root / "b.toml").write_text("other = 1\n")
    grep = grep_tool(workspace)
    assert call(grep, pattern="CURRENCY").text == 'Matches if case is ignored:\na.toml:1:currency = "CHF"'
    elsewhere = call(grep, pattern="currency", path="b.toml")
    assert elsewhere.text == "No matches in b.toml. There are matches in these files:\na.toml"
    words = call(grep, pattern="the port number", path="a.toml").text
    assert words == "No line has all of this. Lines with one of the words:\na.toml:2:port = 1"
    assert call(grep, pattern="nowhere", path="b.toml").text.startswith("No matches. ")


def test_files_are_found_by_glob_in_the_order_of_their_paths(root, workspace, call):
    for name in ("b.py", "a/c.py", "a/d.md", "a/b/e.py", ".github/f.yml", "g.PY"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    glob = glob_tool(workspace)
    assert call(glob, pattern="*.py").text.split() == ["a/b/e.py", "a/c.py", "b.py"]
    assert call(glob, pattern="./a/*.py").text.split() == ["a/c.py"]
    assert call(glob, pattern=f"{root}/a/**/*.py").text.split() == ["a/b/e.py", "a/c.py"]
    assert call(glob, pattern="*.{md,yml}").text.split() == [".github/f.yml", "a/d.md"]
    assert call(glob, pattern="*.py", path="a").text.split() == ["a/b/e.py", "a/c.py"]
    nothing = call(glob, pattern="*.rs", path="a/b")
    assert (nothing.text, nothing.data, nothing.is_our_own) == ("No files match.", "There are:\na/b/e.py", True)
    limited = call(glob, pattern="*", limit=2).text.splitlines()
    assert limited[:2] == [".github/f.yml", "a/b/e.py"]
    assert limited[2].startswith("[more results than")
    assert call(glob, pattern="*", path="b.py").text == "b.py is not a directory; give a directory as `path`."
    assert call(glob, pattern="!*.py").is_error


def test_a_root_that_is_itself_a_link_works(tmp_path, call):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("needle\n")
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace(tmp_path / "link")
    assert call(grep_tool(workspace), pattern="needle", path=str(tmp_path / "link/a.txt")).text == "a.txt:1:needle"


def test_slots_bound_how_many_searches_run_at_once(root, workspace):
    (root / "a.txt").write_text("needle\n")

    async def search_often():
        grep = grep_tool(workspace, asyncio.Semaphore(2))
        calls = [grep.run({"pattern": "needle"}, ToolContext()) for _ in range(20)]
        async with asyncio.TaskGroup() as group:
            return [group.create_task(call) for call in calls]

    assert {task.result().text for task in asyncio.run(search_often())} == {"a.txt:1:needle"}
