"""The commands: numbered tasks, and the agents that research, plan, implement, revise and review them."""
