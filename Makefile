# make run and make test set up their own environment; all they need is Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check lint types layers bench docs clean help

help:
	@echo "make run     a tour of a sample workspace, with a piece of work at its end"
	@echo "make test    run all tests"
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

test: $(VENV)/.ready
	@if [ -n "$$CI" ]; then scripts/system-packages; fi
	$(BIN)/python -m pytest -n 2

check: lint types layers

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/pyright

layers: $(VENV)/.ready
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.ready
	$(BIN)/python docs/generate.py

bench: $(VENV)/.ready
	$(BIN)/python bench/scan.py
	$(BIN)/python bench/pack.py
	$(BIN)/python bench/permissions.py
	$(BIN)/python bench/tools.py
	$(BIN)/python bench/tokens.py
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/stopping.py
	$(BIN)/python bench/hostile.py
	$(BIN)/python bench/mcp.py
	$(BIN)/python bench/savings.py
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/at_terminal.py

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache
