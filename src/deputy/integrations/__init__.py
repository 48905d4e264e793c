"""The Delegate tool for agents of other frameworks. Each module needs its framework, which Deputy does not install."""
