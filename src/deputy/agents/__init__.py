"""Agent definitions: find, read, forgive, warn."""
