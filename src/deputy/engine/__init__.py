"""Effects in order: the flow of a delegation over ports, knowing no adapter."""
