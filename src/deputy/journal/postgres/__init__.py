"""The journal in Postgres: schema, writer, queries and store."""
