"""The live view of subagents: a table on a terminal, lines in a pipe, or events as JSON."""
