# llmgw: `make` alone lists what there is.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only pytest's own workers run the tests side by side; two suit two cores.
JOBS ?= 2
export PYTHONDONTWRITEBYTECODE ?=

.PHONY: help install up test test-fast prove clients lint openapi fmt bench bench-heartbeats bench-mirror bench-scheduler bench-usage lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/uv:
	@echo "==> making $(VENV) ($$($(PYTHON) --version))"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "llmgw needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

# A tree that is ready for the tests is ready to run: the larger lock holds the smaller one.
$(VENV)/.ready-run: $(BIN)/uv requirements/run.txt requirements/quickstart.txt pyproject.toml
	@if [ -f $(VENV)/.ready-dev ]; then $(MAKE) --no-print-directory $(VENV)/.ready-dev; else scripts/install.sh requirements/run.txt; fi
	@touch $@

$(VENV)/.ready-dev: $(BIN)/uv requirements/dev.txt requirements/quickstart.txt pyproject.toml
	@scripts/install.sh requirements/dev.txt
	@touch $@

install: $(VENV)/.ready-run ## install what a node needs; then `.venv/bin/llmgw up` or `llmgw node join`

up: $(VENV)/.ready-run ## install, start all of llmgw on this machine with a real small model, say how to use it
	@exec $(BIN)/llmgw up $(ARGS)

test: $(VENV)/.ready-dev ## install and pass the tests
	@scripts/test.sh $(ARGS)

test-fast: $(VENV)/.ready-dev ## what needs no engine, no browser and no second database (3 to 4 minutes)
	@$(BIN)/pytest -n $(JOBS) -m "not slow and not prove" $(ARGS)

prove: $(VENV)/.ready-dev ## the long counts: schedules, fuzzing, soak (under 60 minutes)
	@$(BIN)/pytest -n $$(($(JOBS) + 1)) --dist loadgroup -m "prove or property" --hypothesis-profile=prove --timeout=3000 --durations=10 $(ARGS)
	@$(BIN)/python -m tests.postgres -- $(BIN)/pytest -n $(JOBS) -m "prove and django_db and not any_database" --timeout=3000 $(ARGS) || [ $$? = 5 ] # 5: none of it was asked for

clients: $(VENV)/.ready-dev ## try npm's `ai` package against a running llmgw (needs node 20, and npm's registry)
	@npm ci --prefix tests/clients/ai_sdk --ignore-scripts --no-audit --no-fund
	@$(BIN)/pytest -p no:randomly tests/clients/ai_sdk.py $(ARGS)

lint: $(VENV)/.ready-dev ## style, types, import contracts, migrations, OpenAPI schema
	@scripts/lint.sh

openapi: $(VENV)/.ready-dev ## write docs/openapi.yaml anew from the code
	@data=$$(mktemp -d); LLMGW_DATA=$$data $(BIN)/python manage.py spectacular --fail-on-warn --validate --file docs/openapi.yaml; rm -rf $$data

fmt: $(VENV)/.ready-dev ## put the code into shape
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

bench: $(VENV)/.ready-dev ## measure the data path beside nginx; writes var/bench/gateway.json
	@$(BIN)/python -m tests.bench $(ARGS)

bench-heartbeats: $(VENV)/.ready-dev ## measure what the heartbeats of 1,000 nodes cost a controller; writes var/bench/heartbeats.json
	@$(BIN)/python -m tests.bench.heartbeats $(ARGS)

bench-mirror: $(VENV)/.ready-dev ## measure how fast a node gives weights to another, beside nginx; writes var/bench/mirror.json
	@$(BIN)/python -m tests.bench.mirror $(ARGS)

bench-usage: $(VENV)/.ready-dev ## measure reports at the end of a year of 10 million requests a day; writes var/bench/usage.json
	@$(BIN)/python -m tests.bench.usage $(ARGS)

bench-scheduler: $(VENV)/.ready-dev ## measure the scheduler's decisions on 100 to 10,000 nodes; writes var/bench/scheduler.json
	@$(BIN)/python -m tests.bench.scheduler $(ARGS)

lock: $(BIN)/uv ## write the locks anew from pyproject.toml
	@scripts/lock.sh

clean: ## remove what was installed and measured; data under var/ stays
	@rm -rf $(VENV) tests/clients/ai_sdk/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
