# Headrace. Every target here is also what CI calls. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
JOBS ?= $(shell nproc)
PACKAGES := appliance security remoting tui client_installer
FUZZ_SECONDS ?= 60

.PHONY: help setup generate ptx-report build test test-gpu test-asan test-suites test-frameworks \
        lint typecheck bench demo fuzz format constraints clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what is missing: Debian packages (as root) and a .venv
	@scripts/setup </dev/null

generate: setup ## Write committed generated files anew (codec for Python, reference pages)
	@$(PYTHON) -m remoting.codegen --protocol-python --coverage
	@$(PYTHON) -m appliance.config

ptx-report: setup ## Count the PTX forms that are accepted and tested (docs/reference/ptx-forms.md)
	@$(PYTHON) -m tests.unit.softgpu_ptx.ptx_report

build: setup ## Build the native parts into build/release
	@scripts/build release $(JOBS)

# What lint and typecheck do is done by tests/lint.
test: build ## Run every test that needs no GPU, the linters included
	@scripts/test-cpp build/release
	@$(PYTHON) -m pytest

test-gpu: build ## Run the driver-semantics tests on a real GPU
	@scripts/test-gpu

test-asan: setup ## Run C++ and end-to-end tests on AddressSanitizer and UBSan builds
	@scripts/build asan-ubsan $(JOBS)
	@scripts/test-asan

test-suites: build ## Run other people's test suites, directly and through the network (hours)
	@scripts/test-suites

test-frameworks: build ## Run programs of PyTorch, JAX and Triton both ways (installs them: 15 GB)
	@scripts/test-frameworks

lint: setup ## Check style and the layers between packages
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@scripts/format-cpp --check
	@.venv/bin/lint-imports --no-logo

typecheck: setup ## Check types (mypy --strict)
	@$(PYTHON) -m mypy

format: setup ## Format Python and C++ sources in place
	@$(PYTHON) -m ruff check --fix --exit-zero --quiet
	@$(PYTHON) -m ruff format
	@scripts/format-cpp --write

bench: build ## Measure calls, launches and copies next to a raw TLS connection
	@scripts/bench

demo: setup ## Run real CUDA programs on this machine without a GPU, through TLS
	@scripts/build release $(JOBS) product
	@$(PYTHON) -m docs.tutorial.demo

fuzz: setup ## Fuzz the decoders (FUZZ_SECONDS each, 60 by default)
	@scripts/fuzz $(FUZZ_SECONDS) $(JOBS)

constraints: setup ## Pin anew what the pins of pyproject.toml bring along
	@scripts/pin-constraints

clean: ## Remove build results and caches; .venv stays
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache demo-output
	@find $(PACKAGES) tests docs scripts -name __pycache__ -prune -exec rm -rf {} +
