"""The parts of `make bench`. `bench.py` runs them; `README.md` says what their numbers mean."""
