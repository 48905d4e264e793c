"""Numbered tasks of a project, and the commands whose agents research, plan, implement, revise and review them."""
