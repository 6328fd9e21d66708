# Two commands matter: `make run` shows tailgate at work, `make test` checks everything.
# Each makes .venv by itself from any Python >= 3.11; PYTHON=/path/to/python chooses one.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SILENT:
MAKEFLAGS += --no-builtin-rules

PYTHON ?=
# Two workers, since whole runs mostly wait: for their schedules, engines and timeouts.
PYTEST ?= -n 2 --dist worksteal
VENV := .venv
VLLM_VENV := .venv-vllm
PIP := -m pip install -qq --disable-pip-version-check --no-input
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help run test format lock test-vllm clean

help:
	echo "make run        the first run: simulated engine, smoke profile, HTML report"
	echo "make test       formatting, lint, types, import contracts, tests, the docs' commands"
	echo "make format     let ruff format and mend what it can"
	echo "make test-vllm  opt-in: launch a real vLLM on the CPU (installs about 3 GB into $(VLLM_VENV))"
	echo "make lock       resolve the dependencies of pyproject.toml again into requirements/"
	echo "make clean      remove the environments and caches (runs/ stays)"

run: $(VENV)/run.stamp
	$(VENV)/bin/tailgate run --engine sim-static --profile smoke --sla smoke

test: $(VENV)/dev.stamp
	$(VENV)/bin/ruff format --quiet --check . || { echo "mend: make format"; exit 1; }
	$(VENV)/bin/ruff check --quiet .
	$(VENV)/bin/mypy --no-error-summary
	$(VENV)/bin/lint-imports > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	$(VENV)/bin/pytest --quiet $(PYTEST)

format: $(VENV)/dev.stamp
	$(VENV)/bin/ruff format --quiet .
	$(VENV)/bin/ruff check --quiet --fix .

test-vllm: $(VENV)/dev.stamp $(VLLM_VENV)/vllm.stamp
	$(VENV)/bin/pytest -m vllm tests/vllm -rA -n 0

lock: $(VENV)/bin/python
	bash requirements/lock.sh

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# A command that is interrupted leaves no target behind, so the next one starts that step again.
$(VENV)/bin/python:
	bash requirements/find-python.sh "$(PYTHON)" $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python requirements/run.txt requirements/build.txt pyproject.toml
	echo "Installing what tailgate runs on into $(VENV) ..."
	$(VENV)/bin/python $(PIP) --require-hashes -r requirements/build.txt -r requirements/run.txt
	$(VENV)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	echo "Installing what the tests need into $(VENV) ..."
	$(VENV)/bin/python $(PIP) --require-hashes -r requirements/dev.txt
	touch $@

$(VLLM_VENV)/vllm.stamp: tests/vllm/install.sh
	bash requirements/find-python.sh "$(PYTHON)" $(VLLM_VENV)
	bash tests/vllm/install.sh $(VLLM_VENV)
	touch $@
