from msgspec import Struct

from deputy.core.error_groups import alike, grouped


class Seen(Struct, frozen=True):
    id: str
    type: str
    code: str
    count: int
    last_at: float = 0.0


RARE = Seen("a", "timeout", "TIMEOUT", 1)
OFTEN = Seen("b", "validation", "INVALID_RETURN", 3)
ALIKE = Seen("c", "validation", "INVALID_RETURN", 4)
LATER = Seen("d", "validation", "INVALID_RETURN", 3, 9.0)


def test_errors_of_one_kind_stand_together_and_the_most_frequent_come_first() -> None:
    first, second = grouped([RARE, OFTEN, ALIKE, LATER])
    assert (first.code, first.count, first.ids, first.is_recurring) == ("INVALID_RETURN", 10, ("c", "d", "b"), True)
    assert (second.code, second.count, second.ids, second.is_recurring) == ("TIMEOUT", 1, ("a",), False)
    assert grouped([]) == []


def test_an_error_is_handed_over_with_those_like_it() -> None:
    assert alike([RARE, OFTEN, ALIKE, LATER], "b") == [OFTEN, ALIKE, LATER]
    assert alike([RARE, OFTEN], "a") == [RARE]
    assert alike([RARE, OFTEN], "nothing") == []
