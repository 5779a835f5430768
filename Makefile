# Works with GNU make 3.81 and a POSIX sh, so with what macOS brings.

PYTHON ?= python3
PIP_VERSION := 26.3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
MODEL := smollm2-135m

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types unit model clean

help: ## show this list
	@echo 'make TARGET [PYTHON=python3.12]'
	@grep -E '^[a-z]+:.*## ' Makefile | sed -e 's/:.*## /|/' | awk -F '|' '{ printf "  %-8s %s\n", $$1, $$2 }'

demo: model ## install, then label the example tickets with the built-in model
	@mkdir -p examples/out
	$(BIN)/lengthwise classify examples/tickets.csv --text subject --text body \
	  --task examples/task.toml --model $(MODEL) -o examples/out/labelled.csv

test: lint types model ## everything a change must pass: lint, types and all tests
	$(BIN)/python -m pytest

lint: $(INSTALLED) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## mypy, strict, on src
	$(BIN)/mypy

unit: $(INSTALLED) ## the tests that need no model
	$(BIN)/python -m pytest -m 'not model'

model: $(INSTALLED) ## fetch the built-in model (98 MB) unless it is there
	$(BIN)/lengthwise models pull $(MODEL)

clean: ## remove .venv and everything made here; the model cache stays
	rm -rf $(VENV) examples/out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when a dependency or a pin changes; otherwise a second call costs nothing.
$(INSTALLED): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "lengthwise needs Python 3.11 or newer and '$(PYTHON)' is" \
	    "$$($(PYTHON) --version 2>/dev/null || echo 'not there'); name another one: make PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time) ..." >&2
	@$(BIN)/python -m pip install --quiet pip==$(PIP_VERSION)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt \
	  --group dev --editable .
	@touch $@
