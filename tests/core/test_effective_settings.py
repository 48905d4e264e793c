import pytest

from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import UsageError
from deputy.core.limits import WallLimit

SHIPPED = EffectiveSettings()


@pytest.mark.rule("time.wall")
@pytest.mark.parametrize(
    ("kind", "default", "most"),
    [
        ("research", 3600, 7200),
        ("plan", 1800, 3600),
        ("implement", 7200, 14400),
        ("revise", 1800, 3600),
        ("review", 3600, 7200),
        ("task", 300, 3600),
        ("todo", 300, 3600),
        ("errors", 300, 3600),
        ("meta", 300, 3600),
        ("anything else", 3600, 7200),
    ],
)
def test_each_kind_has_a_default_and_a_maximum(kind, default, most):
    assert SHIPPED.seconds(kind, None) == default
    assert SHIPPED.seconds(kind, most) == most
    with pytest.raises(UsageError, match=f"timeout: found {most + 1}.*at most {most} seconds"):
        SHIPPED.seconds(kind, most + 1)


@pytest.mark.rule("time.wall")
@pytest.mark.parametrize("asked", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_no_time_at_all_is_refused(asked):
    with pytest.raises(UsageError, match="timeout"):
        SHIPPED.seconds("research", asked)


@pytest.mark.rule("time.wall")
def test_limits_can_be_set_per_command():
    limited = EffectiveSettings(wall={"research": WallLimit(10, 20)})
    assert limited.seconds("research", None) == 10
    with pytest.raises(UsageError, match="at most 20 seconds"):
        limited.seconds("research", 21)
