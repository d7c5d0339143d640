# Everything a newcomer needs: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet -c constraints.txt

.PHONY: demo test check bench bench-peers clean

demo: .venv/installed
	.venv/bin/evenhand compare demo --out runs/demo --force

test: .venv/installed-dev
	.venv/bin/python -m pytest

check: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python -m pytest

# `make bench LARGE=1` adds a log of 20 million pairs; EVENHAND_ML100K is a folder with MovieLens-100K.
bench: .venv/installed
	.venv/bin/python benchmarks/bench.py $(if $(LARGE),--large) $(BENCH)

# Other libraries to compare with, in an environment of their own.
bench-peers: .venv-peers/installed


clean:
	rm -rf .venv .venv-peers runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ .venv/installed

.venv-peers/installed: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet -r benchmarks/peers/requirements.txt
	@touch $@
