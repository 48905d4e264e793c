"""Events come out whole, however their bytes are cut, in linear time and bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.core.model_errors import ReplyTooLarge
from deputy.models.sse import EventReader


def read(*chunks, limit=1 << 20):
    reader = EventReader(limit)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.close()


def test_an_event_is_the_data_between_empty_lines():
    assert read(b"event: a\ndata: one\nid: 7\n\ndata:two\n\n: comment\n\nretry: 3\n\ndata\n\n") == [b"one", b"two"]


def test_several_data_lines_are_one_event():
    assert read(b"data: one\ndata:\ndata:  two\n\n") == [b"one\n\n two"]


def test_a_line_end_cut_in_two_is_one_line_end():
    assert read(b"data: one\r", b"\ndata: two\r\n\r\n") == [b"one\ntwo"]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert read(b"\xef\xbb", b"\xbfdata: one\n\n") == [b"one"]


def test_an_event_without_its_closing_line_counts_when_the_stream_ends():
    assert read(b"data: one\n\ndata: two") == [b"one", b"two"]


def test_an_event_larger_than_the_limit_is_refused():
    with pytest.raises(ReplyTooLarge):
        read(*[b"data: " + b"x" * 10] * 20, limit=100)
    with pytest.raises(ReplyTooLarge):
        read(*[b"data: xxxxxxxx\n"] * 20, limit=100)
    assert len(read(*[b"data: xxxxxxxx\n\n"] * 20, limit=100)) == 20


def test_many_lines_and_many_pieces_cost_no_more_than_their_bytes():
    reader = EventReader(1 << 30)
    for _ in range(200_000):
        assert reader.feed(b"data: x\n") == []
    for _ in range(200_000):
        assert reader.feed(b"y") == []
    assert len(reader.close()[0]) == 2 * 200_000 - 1


PIECES = [b"data: a", b"data:b", b"data: {}\n\n", b"\n", b"\n\n", b"event: x\n", b"data: ", b": c\n", b"\xef\xbb\xbf"]


@given(st.lists(st.sampled_from(PIECES)))
def test_a_chunk_of_plain_events_is_read_as_byte_by_byte(pieces):
    stream = b"".join(pieces)
    assert read(stream) == read(*(bytes([byte]) for byte in stream))


EVENTS = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=8)


@given(EVENTS, st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(1, 40)), st.booleans())
def test_cutting_the_bytes_anywhere_changes_nothing(texts, line_end, sizes, with_comments):
    parts = [f"data: {text}{line_end}{line_end}" for text in texts]
    stream = (f": ping{line_end}{line_end}" if with_comments else "").join(["", *parts]).encode()
    chunks, at = [], 0
    for size in sizes:
        chunks.append(stream[at : at + size])
        at += size
    assert read(*chunks, stream[at:]) == [text.encode() for text in texts]
