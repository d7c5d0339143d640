"""Hostile input for everything that reads what others wrote; docs/hostile-input.md says how to run it."""
