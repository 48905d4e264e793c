"""What a person or a program sees while subagents work: a board of lines, painted live, printed, or told as JSON."""
