"""Deputy as an agent of the Agent Client Protocol (ACP): in an editor, over standard input and output."""
