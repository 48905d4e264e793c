from deputy.interfaces.numbers import count, dollars, elapsed


def test_numbers_are_short_enough_for_a_line():
    assert [count(n) for n in (0, 890, 999, 1000, 2100, 9949, 9960, 45_000, 999_600, 1_250_000)] == [
        "0", "890", "999", "1k", "2.1k", "9.9k", "10k", "45k", "1M", "1.2M",
    ]  # fmt: skip
    assert [elapsed(s) for s in (0.04, 9.94, 9.96, 59.4, 59.6, 185, 7620, 273_700)] == [
        "0.0s", "9.9s", "10s", "59s", "1m00s", "3m05s", "2h07m", "3d04h",
    ]  # fmt: skip
    assert [dollars(n) for n in (None, 0, 1_200_000, 140_000_000)] == ["", "", "$0.0012", "$0.14"]
