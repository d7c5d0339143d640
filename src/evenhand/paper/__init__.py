"""What belongs to the paper alone: its published tables and settings, what they say, its error measures."""
