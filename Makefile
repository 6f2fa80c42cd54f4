# make run and make test set up their own environment; all they need is Python 3.11+, git and make.
PYTHON ?= python3
# .venv is for the default interpreter; any other has an environment of its own, e.g. .venv-3.13.
VENV := .venv$(if $(filter-out python3,$(PYTHON)),$(or $(shell $(PYTHON) -c 'import sys; print("-%d.%d" % sys.version_info[:2])'),$(error PYTHON=$(PYTHON) does not run)))
WORKERS ?= 4
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-long test-matrix check lint types layers bench docs clean help

help:
	@echo "make run     a tour of a sample workspace, with a piece of work at its end"
	@echo "make test    run the tests, in about five minutes"
	@echo "make test-long  run the whole matrix, on every supported Python that is found"
	@echo "make check   lint, types and import layers"
	@echo "make bench   measure against a floor, in one run"

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Kitbag needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once)..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(VENV)/.ready
	@sh examples/tour.sh $(abspath $(BIN)/kitbag)

# Without the conformance suite or axe-core only their tests fail, and say how to get them.
# More workers than cores, because many tests wait for processes; they take work from each other.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# In a fresh clone every worker would compile all tests at the same time; it is done once instead, on two cores.
$(VENV)/.compiled: $(VENV)/.ready
	@find tests -name 'test_*.py' | sort | xargs -P 2 -n 101 $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@touch $@

test: $(VENV)/.compiled
	@if [ -n "$$CI" ]; then scripts/system-packages && { scripts/conformance-suite || true; } && { scripts/axe-core || true; }; fi
	$(PYTEST)

# What only the long run has: the rest of each matrix, and property tests with many more examples.
test-matrix: $(VENV)/.ready
	KITBAG_TESTS=long $(PYTEST) -m 'long or hypothesis'

test-long: $(VENV)/.ready
	@if [ -n "$$CI" ]; then scripts/system-packages && { scripts/conformance-suite || true; } && { scripts/axe-core || true; }; fi
	KITBAG_TESTS=long $(PYTEST)
	@for python in $$(scripts/interpreters); do $(MAKE) test PYTHON=$$python || exit 1; done

check: lint types layers

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(VENV)/.ready
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.ready
	$(BIN)/python docs/generate.py

bench: $(VENV)/.ready
	$(BIN)/python bench/scan.py
	$(BIN)/python bench/routing.py
	$(BIN)/python bench/pack.py
	$(BIN)/python bench/permissions.py
	$(BIN)/python bench/tools.py
	$(BIN)/python bench/sandbox.py
	$(BIN)/python bench/tokens.py
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/stopping.py
	$(BIN)/python bench/hostile.py
	$(BIN)/python bench/redaction.py
	$(BIN)/python bench/audit.py
	$(BIN)/python bench/mcp.py
	$(BIN)/python bench/mcp_http.py
	$(BIN)/python bench/web.py
	$(BIN)/python bench/savings.py
	$(BIN)/python bench/growth.py --tasks 500 5000
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/at_terminal.py

clean:
	rm -rf .venv .venv-* dist build .pytest_cache .ruff_cache
