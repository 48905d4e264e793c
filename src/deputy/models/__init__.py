"""Models: wire protocols, the catalog, retries, and rate limits."""
