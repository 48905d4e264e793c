"""Subtasks: what a task asks for, which template it means, and what is passed to it."""
