"""The faces of Deputy: thin layers that parse, call and render."""
