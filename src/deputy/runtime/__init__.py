"""The engine that executes runs in one process, over a journal."""
