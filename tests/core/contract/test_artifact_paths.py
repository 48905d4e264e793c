"""Paths inside the workspace, by their letters."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy.core.contract.artifact_paths import why_outside


@pytest.mark.rule("contract.check")
@pytest.mark.parametrize(
    "path",
    [
        "a.md",
        "./a.md",
        "a/../b.md",
        "a//b.md",
        "..a",
        "a..",
        ".hidden",
        "/w/a.md",
        "/w",
        "/w/../w/a",
        "~a",
        "a b.md",
        "文書.md",
    ],
)
def test_a_path_inside_the_workspace_passes(path):
    assert why_outside(path, "/w") is None


@pytest.mark.rule("contract.check")
@pytest.mark.parametrize(
    "path",
    [
        "..", "../a", "a/../../b", "./..", "/etc/passwd", "/w/../etc", "/work", "/", "//w/a", "~", "~/a",
        "a\\..\\..\\b", "\\\\server\\share", "c:/a", "C:\\a", "http://x/a", "file:///w/a",
        "a\0b", "a\nb", "a\x1b[2Jb", "a" * 5000,
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused_with_a_reason(path):
    assert why_outside(path, "/w")


def test_without_a_workspace_no_absolute_path_is_inside():
    assert why_outside("/w/a", None)


def test_everything_is_beneath_the_root():
    assert why_outside("/etc/a", "/") is None


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "..", ".", "", "b c", "\\", "..\\", "~"]), min_size=1, max_size=6).map("/".join))
def test_no_path_that_passes_leaves_the_workspace(path):
    if path.strip() and why_outside(path, "/w/x") is None:
        landed = posixpath.normpath(posixpath.join("/w/x", path))
        assert landed == "/w/x" or landed.startswith("/w/x/")
