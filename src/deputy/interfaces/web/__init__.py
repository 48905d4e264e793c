"""The web page: a server that reads the journal, and a front end without a build step."""
