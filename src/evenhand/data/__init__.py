"""From files and frames to interactions, their popularity, and their splits."""
