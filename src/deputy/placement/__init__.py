"""Engines that hand placed runs to workers."""
