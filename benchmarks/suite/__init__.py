"""The parts of `make bench`; `benchmarks/bench.py` runs them and `benchmarks/README.md` says what they mean."""
