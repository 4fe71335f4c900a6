# Every target does its own set-up. uv is used when it is there, else venv and pip.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell bash scripts/find-python)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# All harness programs that there is an adapter for: the tests drive them.
HARNESSES := claude-code pi codex opencode gemini-cli qwen-code mini-swe-agent
# Of `make smoke`.
HARNESS ?= claude-code

.PHONY: help setup demo test test-fast lint bench coverage-study harnesses conformance smoke clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## a virtual environment with everything in it

$(STAMP): pyproject.toml constraints.txt
	@bash scripts/setup "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(STAMP)  ## the main job, offline: faults on small repair tasks, a score and a report
	$(BIN)/chaosproxy demo

test: $(STAMP)  ## all tests, those with real harness programs too
	$(BIN)/python -m harness.install $(HARNESSES)
	$(BIN)/pytest

test-fast: $(STAMP)  ## the tests that start no harness program
	$(BIN)/pytest -m "not e2e"

lint: $(STAMP)  ## ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## what the proxy costs, as ratios measured in one run
	$(BIN)/python -m bench $(BENCH_ARGS)

coverage-study: $(STAMP)  ## how often the intervals hold what they should, simulated (long)
	$(BIN)/python -m bench.coverage_study

harnesses: $(STAMP)  ## brings every harness program that there is an adapter for into the cache
	$(BIN)/python -m harness.install $(HARNESSES)

conformance: harnesses  ## does each fault reach the model? every cell of every harness, three starts each (long)
	@failed=; for harness in $(HARNESSES); do \
	  $(BIN)/chaosproxy conformance $$harness --keep-evidence || failed="$$failed $$harness"; \
	done; [ -z "$$failed" ] || { echo "cells fail:$$failed" >&2; exit 1; }

smoke: $(STAMP)  ## one harness (HARNESS=…) on three pilot tasks, off and moderate, from trial to report
	$(BIN)/python -m harness.install $(HARNESS)
	$(BIN)/python -m harness.smoke_run --harness $(HARNESS)

clean:  ## removes what make made here
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-out smoke-out conformance-out
