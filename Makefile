# Everything a newcomer needs: `make demo` to see it work, `make test` to check it.
PYTHON ?= python3
PIP = .venv/bin/pip install --quiet -c constraints.txt
# One process more than there are cores (tests/conftest.py), eight at most.
# Byte code is kept, or every process that a test starts would compile the package again.
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: demo test test-s3 check audit-dependencies package test-lowest drift torture fuzz bench bench-peers clean

# A simulated world that also knows what users like among items shown at random.
demo: .venv/installed
	.venv/bin/evenhand compare demo --seeds 1 --epochs 50 --k 10 --out runs/demo --force \
	  --methods popular,ease,dns,pns,auc-ns:ecdf=64,recipe:budget=10

test: .venv/installed-dev
	$(PYTEST)

check: .venv/installed-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	$(PYTEST)
	$(MAKE) --no-print-directory audit-dependencies

# The tests of object storage, against a server that speaks S3. It and what it needs are 114 MB, and older versions than
# the pinned ones in part, so they go to a folder of their own; without them these tests skip.
test-s3: .venv-s3/installed
	PYTHONPATH=.venv-s3 .venv/bin/python -m pytest -k object_store tests/data/test_folders.py tests/models/test_spread_files.py

# Known vulnerabilities of what evenhand runs on. Without a network it says that it did not run.
audit-dependencies: .venv/installed
	-@test -x .venv-audit/bin/pip-audit || \
	  { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	@.venv/bin/python scripts/audit_dependencies.py .venv-audit/bin/pip-audit

# sdist, wheel and bill of materials in dist/, built twice to the same bytes; the wheel is tried in a fresh environment
# outside the checkout.
package:
	$(PYTHON) scripts/check_package.py

# The tests with the lowest version of every dependency that pyproject.toml allows; torch alone is as usual.
test-lowest: .venv-lowest/installed
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/python -m pytest $(LOWEST)

# Rewrites tests/drift.json, the numbers that tests/test_drift.py holds every method to.
drift: .venv/installed
	.venv/bin/python scripts/drift.py

# Kills every kind of work at each of its file operations and at random moments, and fills disks; half an hour.
torture: .venv/installed
	.venv/bin/python -m checks.faults --kills 200 $(TORTURE)

# Hostile input for every reader (docs/hostile-input.md); `make fuzz FUZZ="--inputs 500"` is a short form.
fuzz: .venv/installed-dev
	.venv/bin/python checks/fuzz/run.py $(FUZZ)

# `make bench LARGE=1` adds a log of 20 million pairs; EVENHAND_ML100K is a folder with MovieLens-100K.
bench: .venv/installed
	.venv/bin/python benchmarks/bench.py $(if $(LARGE),--large) $(BENCH)

# Other libraries to compare with, in an environment of their own.
bench-peers: .venv-peers/installed


clean:
	rm -rf .venv .venv-s3 .venv-peers .venv-audit .venv-lowest runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev,serve-test,docs]'
	@touch $@ .venv/installed

.venv-peers/installed: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet -r benchmarks/peers/requirements.txt
	@touch $@

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet -c constraints-lowest.txt -e '.[dev]'
	@touch $@

.venv-s3/installed: pyproject.toml | .venv/installed-dev
	.venv/bin/pip install --quiet --upgrade --target .venv-s3 'moto[s3]>=5.1' 'flask>=3' 'flask-cors>=5'
	@touch $@
