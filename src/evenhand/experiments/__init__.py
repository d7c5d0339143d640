"""Many fits, one table."""
