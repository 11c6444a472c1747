# Two commands: `make run` sets everything up and shows what Trellis does; `make test` sets everything up and tests it.
# They need python3 (3.11 or newer, with venv) and a package index, nothing else.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help run test test-slow lint bench docs lock clean

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Trellis needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "Setting up .venv: once, 700 MB to fetch and 1.6 GB on disk; two to six minutes without a word"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(INSTALLED)  ## set up, then take a short tour
	@$(BIN)/trellis demo

# One worker runs all tests on Spark, in one session, while the others go on: see tests/conftest.py. Bytecode is kept
# even where the environment says otherwise, since pytest else rewrites every test file anew in every worker.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

# Two workers more than cores: tests of live nodes mostly wait, and one worker is busy with Spark.
WORKERS := $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)' 2>/dev/null || echo auto)

KERNEL_TESTS := tests/properties/test_construct_low_edges.py tests/properties/test_tables.py \
  $(wildcard tests/properties/test_maintain*.py) $(wildcard tests/properties/test_measure*.py) tests/examples/test_construct.py

test: $(INSTALLED)  ## set up, then run every test that is not slow
	@$(PYTEST) -n $(WORKERS) -m "not slow"

test-slow: $(INSTALLED)  ## the long checks; kernels once more without compiling, once more with every index checked
	@$(PYTEST) -n auto -m slow
	@NUMBA_DISABLE_JIT=1 $(PYTEST) -n auto -m "not slow" $(KERNEL_TESTS)
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.numba-bounds-cache $(PYTEST) -n auto -m "not slow" $(KERNEL_TESTS) \
	  tests/cycles/test_gossip.py tests/cycles/test_vitis.py tests/cycles/test_spidercast.py

lint: $(INSTALLED)  ## ruff, mypy and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(INSTALLED)  ## every benchmark; figures go to standard output
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

docs: $(INSTALLED)  ## what is made of the documentation: the Python interface, licences, figures and results
	@$(BIN)/python docs/make_api.py
	@$(BIN)/python docs/make_licences.py
	@$(BIN)/python docs/make_figures.py
	@$(BIN)/trellis lab pages

lock: $(INSTALLED)  ## pin every dependency anew (needs uv on the PATH)
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-package trellis-overlay --no-header --upgrade --quiet -o requirements.lock

clean:  ## remove the environment and caches
	rm -rf .venv .numba-bounds-cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
