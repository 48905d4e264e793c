"""One file per subject: `command(plan)`, `dialect(plan)`, and `LACKS`, what it has no way to do."""
