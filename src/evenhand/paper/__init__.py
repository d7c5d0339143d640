"""What belongs to the paper alone: its error measures and, in time, its published tables."""
