"""Trace ids of runs, and the `traceparent` of callers."""

import pytest
from msgspec import structs
from tests.support.every_case import every_case

from deputy.core.request import Lineage, task_hop
from deputy.core.trace_context import TraceParent, read_traceparent, run_span_id, run_trace_id, run_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [(f"00-{TRACE}-{SPAN}-01", True), (f" 00-{TRACE}-{SPAN}-00\n", False), (f"01-{TRACE}-{SPAN}-03-more", True)],
)
def test_a_valid_traceparent_is_read(text: str, is_sampled: bool):
    assert read_traceparent(text) == TraceParent(TRACE, SPAN, is_sampled)


@every_case(
    "text",
    [
        None,
        7,
        "",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{SPAN}-01-{'x' * 1000}",
    ],
)
def test_any_other_text_is_no_traceparent(text: object):
    assert read_traceparent(text) is None


def test_what_is_written_can_be_read():
    assert str(TraceParent(TRACE, SPAN, is_sampled=True)) == f"00-{TRACE}-{SPAN}-01"
    assert str(TraceParent(TRACE, SPAN, is_sampled=False)) == f"00-{TRACE}-{SPAN}-00"


def test_a_tree_has_one_trace_that_follows_from_its_root_or_is_its_callers():
    root = Lineage.root("sess_1_aaaaaa")
    child = root.child("sess_1_bbbbbb", task_hop("a"), "s", now=0.0, seconds=None)
    assert run_trace_id(root) == run_trace_id(child) == run_trace_id(Lineage.root("sess_1_aaaaaa"))
    assert run_trace_id(root) != run_trace_id(Lineage.root("sess_1_cccccc"))
    called = structs.replace(root, traceparent=f"00-{TRACE}-{SPAN}-01")
    below = called.child("sess_1_bbbbbb", task_hop("a"), "s", now=0.0, seconds=None)
    assert run_trace_id(called) == run_trace_id(below) == TRACE
    assert read_traceparent(str(run_traceparent(below, 2))) == TraceParent(
        TRACE, run_span_id(below.session_id, 2), True
    )


def test_each_round_of_a_run_has_its_own_span():
    assert len({run_span_id("sess_1_a", 0), run_span_id("sess_1_a", 1), run_span_id("sess_1_b", 0)}) == 3
