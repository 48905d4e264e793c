"""Hand work from one agent to another, and get it back."""

__version__ = "0.1.0"
