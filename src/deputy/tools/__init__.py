"""What agents can do: read, search, look at the web; and, where granted, change files and run commands."""
