import random

import pytest

from deputy.core.subtask.relevance import chosen, rank, words_of


def test_words_are_distinguished_from_their_endings_and_joints() -> None:
    assert words_of("parseHttpHeaders, parse_http_header") == ["pars", "http", "header", "pars", "http", "header"]
    assert words_of("The testing of tests") == ["test", "test"]
    assert words_of("x" * 1000) == []


def test_a_planted_fact_is_found_among_many_texts() -> None:
    draw = random.Random(7)
    vocabulary = [
        f"{a}{b}" for a in ("net", "disk", "user", "cache", "log") for b in ("er", "ing", "map", "set", "val")
    ]
    found = 0
    for trial in range(20):
        texts = [" ".join(draw.choices(vocabulary, k=60)) for _ in range(200)]
        at = draw.randrange(200)
        texts[at] += f" The retry ceiling of gateway {trial} is 17 attempts, said the operators."
        scores = rank(f"How many attempts does gateway {trial} retry at most?", texts)
        found += at == max(range(200), key=scores.__getitem__)
    assert found == 20


@pytest.mark.parametrize("texts", [[], [""], ["", "x"]])
def test_nothing_shared_ranks_nothing(texts: list[str]) -> None:
    assert rank("query", texts) == [0.0] * len(texts)
    assert chosen(rank("query", texts), [1] * len(texts), 100) == []


def test_the_best_that_fit_are_chosen_in_their_own_order() -> None:
    assert chosen([3.0, 9.0, 1.0, 5.0], [10, 10, 10, 100], 25) == [0, 1]
    assert chosen([3.0, 9.0, 1.0, 5.0], [10, 10, 10, 10], 100, share=0.5) == [1, 3]
