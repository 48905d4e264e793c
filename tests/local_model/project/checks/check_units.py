"""Checks of the units; run with `python checks/check_units.py`."""

from larder.units import from_cups, to_avoirdupois

assert round(to_avoirdupois(100), 3) == 3.527
assert round(from_cups(2), 1) == 473.2
print("ok")
