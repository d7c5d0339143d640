"""What evenhand promises about faults, tried for real: `make torture`.

Processes are killed at random moments and at every file operation in turn, and disks fill up page by page;
docs/reliability.md says what must hold, and `python -m checks.faults --help` how to run a part of it.
"""
