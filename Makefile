# Everything a newcomer needs: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet -c constraints.txt

.PHONY: demo test check bench clean

demo: .venv/installed
	.venv/bin/evenhand compare demo --out runs/demo --force

test: .venv/installed-dev
	.venv/bin/python -m pytest

check: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/python -m pytest

bench: .venv/installed
	.venv/bin/python benchmarks/epoch.py

clean:
	rm -rf .venv runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ .venv/installed
