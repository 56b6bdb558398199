.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
ARGS ?=
WORKERS ?= 2

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv, install the dependencies and fetch the pinned agent CLIs

$(STAMP): pyproject.toml scripts/setup.sh requirements/cpu.txt
	bash scripts/setup.sh
	@touch $@

train: $(STAMP) ## run the main job (ARGS="harness=codex seed=2" to override)
	$(PY) -m rl_agent $(ARGS)

lint: $(STAMP) ## ruff, mypy and the import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

types: $(STAMP) ## mypy alone
	$(VENV)/bin/mypy

fmt: $(STAMP) ## format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

test: $(STAMP) ## everything but the full matrices: both real CLIs, crash and resume, a sample of each matrix
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not long" --durations=30 $(ARGS)

test-fast: $(STAMP) ## only the tests that take seconds
	$(PY) -m pytest -m "not long and not slow and not e2e" $(ARGS)

test-long: $(STAMP) ## all tests with the full matrices and counts (hours)
	$(PY) -m pytest $(ARGS)

rooms: ## print lines and files per package
	python3 scripts/rooms.py

clean: ## remove what builds and runs left here (not .venv)
	rm -rf outputs .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: help setup train lint types fmt test test-fast test-long rooms clean
