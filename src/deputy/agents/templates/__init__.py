"""Templates of subtasks: find the files, read XML and Markdown, check them."""
