import pytest
from tests.interfaces.cli.commands.test_run import Screen

from deputy.core.progress import Progress
from deputy.interfaces.view.progress_table import ProgressTable
from deputy.interfaces.view.renderers import LinesView, LiveView, MarkdownBlocks, ParentView, View


def test_a_delegation_has_one_line_though_a_resumed_run_reports_it_again(capsys):
    view = LinesView(ProgressTable(("a",)))
    for event, fields in (
        ("started", {}),
        ("tool_call", {"tool": "Delegate", "args": "x"}),
        ("tool_call", {"tool": "Delegate", "args": "x"}),
        ("tool_call", {"tool": "Read", "args": "y"}),
        ("tool_call", {"tool": "Read", "args": "y"}),
        ("tool_call", {"tool": "Delegate", "args": "z"}),
    ):
        view.emit(Progress(event=event, label="a", session_id="sess_a", **fields))
    shown = [line.split(" → ")[1].split()[0:2] for line in capsys.readouterr().err.splitlines()[2:]]
    assert shown == [["Delegate", "x"], ["Read", "y"], ["Read", "y"], ["Delegate", "z"]]


def test_giving_the_terminal_back_does_not_take_it_from_an_open_question(capsys):
    view = LiveView(ProgressTable(("a",)))
    view.emit(Progress(event="started", label="a", session_id="sess_a"))
    view.pause("a question")
    view.pause("an aside")
    capsys.readouterr()
    view.unpause("an aside")
    view.finish()
    assert capsys.readouterr().err == ""
    view.unpause("a question")
    view.finish()
    assert "[a]" in capsys.readouterr().err


def test_streamed_markdown_is_cut_into_blocks_that_can_be_rendered_alone():
    blocks = [
        "# Title",
        "A paragraph\nof two lines.",
        "1. first\n\n   more of it",
        "2. second",
        "```python\nx = 1\n\n# no heading\n```",
        "~~~\n```\n\n~~~",
        "The end",
    ]
    text = "\n\n".join(blocks)
    for size in (1, 7, len(text)):
        cut = MarkdownBlocks()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [block for piece in pieces for block in cut.feed(piece)] + cut.finish() == blocks
    early = MarkdownBlocks()
    assert early.feed("First.\n\nSecond") == ["First."], "a block is shown when the next one begins"
    assert early.finish() == ["Second"]
    assert early.finish() == []


@pytest.mark.rule("delegate.view")
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_table_stays_above_a_question_and_gives_way_to_text(capsys, is_kept):
    view = LiveView(ProgressTable(("a",)))
    view.emit(Progress(event="started", label="a", session_id="sess_a"))
    view.pause("a question", is_kept=is_kept)
    rows = Screen(capsys.readouterr().err.replace("\n", "\r\n")).rows
    assert [row.partition(" ")[0] for row in rows] == (["Delegate", "[a]", "total", ""] if is_kept else [""])


def test_the_text_of_a_parent_is_whole_before_its_question(capsys):
    parent = ParentView(View(), is_streaming=True)
    parent.emit(Progress(event="text", label="run", content="First.\n\nThen I"))
    assert capsys.readouterr().out == "First.\n"
    parent.emit(Progress(event="text", label="run", content=" ask."))
    parent.pause("a question", is_kept=True)
    assert capsys.readouterr().out == "\nThen I ask.\n"
    parent.emit(Progress(event="tool_error", label="run", tool="Read", args="a.txt", reason="It does not exist."))
    parent.emit(Progress(event="retry", label="run", attempt=2, of=4, wait=3.0, reason="overloaded"))
    assert capsys.readouterr().err.splitlines() == [
        "✗ Read a.txt: It does not exist.",
        "↻ retrying (2/4) in 3 s: overloaded; ignore the text so far",
    ]
