"""Backends that run other agents' programs."""
