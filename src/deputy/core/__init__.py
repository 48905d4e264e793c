"""The rules of delegation as pure functions: no clock, no randomness, no input or output."""
