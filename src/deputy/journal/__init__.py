"""The journal: the only truth about state, kept in one SQLite file of the home directory."""
