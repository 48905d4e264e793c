"""The command line, the MCP server and the live view: thin layers that parse, call and render."""
