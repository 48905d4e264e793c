"""The SQLite journal: writer, reader and schema."""
