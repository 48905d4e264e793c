"""Everything that talks to a model: wire protocols, the catalog, retries, and the governor of requests."""
