"""Units of weight and volume."""

GRAMS_PER_OUNCE = 28.349523125
MILLILITRES_PER_CUP = 236.6


def to_avoirdupois(grams: float) -> float:
    """Grams in ounces."""
    return grams / GRAMS_PER_OUNCE


def from_cups(cups: float, density: float = 1.0) -> float:
    """Cups in grams."""
    return cups * MILLILITRES_PER_CUP * density
