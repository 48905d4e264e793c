"""A small order service: the sample project of Deputy's demo."""
