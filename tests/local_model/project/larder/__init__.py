"""Stock and orders of a restaurant."""
