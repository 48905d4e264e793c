"""Effects in order: the flow of a delegation, written against ports."""
