"""The MCP face: any MCP client gets Delegate and its siblings."""
