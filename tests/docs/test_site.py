"""The docs are a site whose pages can all be reached, without a broken link."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import deputy

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def named_pages(entry: object) -> list[str]:
    match entry:
        case dict():
            return [page for value in entry.values() for page in named_pages(value)]
        case list():
            return [page for value in entry for page in named_pages(value)]
        case _:
            return [str(entry)]


def test_the_site_is_built_without_a_broken_link(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert run.returncode == 0, run.stdout
    page = (tmp_path / "build" / "site" / "tutorial" / "index.html").read_text("utf-8")
    assert not re.search(r'(?:src|href)="https?://(?!zensical\.org)', page), "a page loads nothing from elsewhere"


def test_every_page_is_in_the_navigation_and_every_decision_in_its_list():
    nav = named_pages(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    assert sorted(nav) == sorted(pages - decisions)
    listed = {f"decisions/{name}" for name in LINK.findall((DOCS / "decisions" / "index.md").read_text("utf-8"))}
    assert listed == decisions


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_pages_outside_of_the_site_lead_somewhere(page):
    assert [link for link in LINK.findall(page.read_text("utf-8")) if not (ROOT / link).exists()] == []


def test_no_message_names_a_page_that_an_installed_package_lacks():
    source = Path(deputy.__file__).parent
    for file in source.rglob("*.py"):
        text = file.read_text()
        if "docs/" not in text:
            continue
        tree = ast.parse(text)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings)
        named = [node.lineno for node in texts if isinstance(node.value, str) and "docs/" in node.value]
        assert not named, f"{file}: {named}"
