"""Observers for logs and traces."""
