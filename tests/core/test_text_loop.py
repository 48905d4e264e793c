"""Text in a loop is found, and only then."""

import pytest

from deputy.core.text_loop import LoopWatch, without_loop

BLOCK = "The answer is in the file. I will look at the file again, and then I will answer.\n"


def is_loop(text: str, piece: int = 7) -> bool:
    watch = LoopWatch()
    return any(watch.feed(text[at : at + piece]) for at in range(0, len(text), piece))


@pytest.mark.parametrize(
    "block", ["ab", BLOCK, BLOCK * 3 + "But first I read another one.\n", "0, ", f"{'-' * 90}{BLOCK}"]
)
def test_the_same_block_again_and_again_is_a_loop(block):
    looping = f"I begin.\n{block * (9_000 // len(block))}"
    assert is_loop(looping)
    kept = without_loop(looping)
    assert kept.startswith(f"I begin.\n{block[:2]}")
    assert len(kept) < 3 * len(block) + 20


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"src/file_{number}.py:{number}: found" for number in range(2_000)),
        "-" * 2_000,
        BLOCK * 10,
        "".join(f"{number * 7919 % 104729} " for number in range(5_000)),
        "".join(f"{number} {'-' * 90}\n" for number in range(500)),
    ],
    ids=["a list", "a rule", "a few times", "numbers", "lines that end alike"],
)
def test_other_text_is_no_loop(text):
    assert not is_loop(text)
    assert without_loop(text) == text
