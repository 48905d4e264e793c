"""The journal in one SQLite file: writer and reader and schema."""
