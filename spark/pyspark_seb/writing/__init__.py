"""Rows are appended to topics, each once however often a task runs."""
