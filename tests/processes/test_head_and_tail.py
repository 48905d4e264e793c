from hypothesis import given
from hypothesis import strategies as st

from deputy.processes.head_and_tail import HeadAndTail


@given(st.lists(st.binary(max_size=40)), st.integers(0, 20), st.integers(0, 20))
def test_head_tail_and_count_are_those_of_the_whole(chunks, head, tail):
    kept, whole = HeadAndTail(head, tail), b"".join(chunks)
    assert all(kept.feed(chunk) for chunk in chunks)
    assert kept.total == len(whole)
    if len(whole) <= head + tail:
        assert kept.text == whole.decode("utf-8", "replace")
    else:
        missing = len(whole) - head - tail
        last = whole[len(whole) - tail :].decode("utf-8", "replace")
        assert kept.text == f"{whole[:head].decode('utf-8', 'replace')}\n[… {missing:,} bytes left out …]\n{last}"
