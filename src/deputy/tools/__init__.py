"""Tools of agents: read, search, fetch from the web, and where granted change files and run commands."""
