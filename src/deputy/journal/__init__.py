"""The journal: the record of everything that happened, in one SQLite file of the home directory."""
