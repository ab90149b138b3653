# `make demo` and `make test` each do all set-up: a machine needs Python 3.11 or later, g++ and make. nvcc is used where it is found.
# Files under .venv record what is done; a second run builds nothing unless csrc/, CMakeLists.txt or pyproject.toml changed.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
AICF_CUDA ?= AUTO
export AICF_CUDA
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# The tests start hundreds of processes. Each would compile the package again if Python kept no bytecode.
export PYTHONDONTWRITEBYTECODE :=
-include local.mk

INSTALLED := $(VENV)/.installed
BUILT := $(VENV)/.built-$(AICF_CUDA)
BENCH_INSTALLED := $(VENV)/.bench-installed
REAL_INSTALLED := $(VENV)/.real-installed
DOCS_INSTALLED := $(VENV)/.docs-installed
NATIVE := $(sort $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh'))
NATIVE_TESTS := $(wildcard tests/cpp/*.cpp tests/cpp/*.h tests/gpu/*.cu)
CHECK_PYTHON := import sys; sys.exit(sys.version_info < (3, 11) and "AICF needs Python 3.11 or later: make PYTHON=...")

.PHONY: help setup build test lit pytest campaign install real demo lint format bench docs wheel clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | while IFS="$$(printf '\t')" read -r name says; do printf '%-10s %s\n' "$$name" "$$says"; done

setup: $(INSTALLED) ## the packages that build, run, test and check, in .venv
build: $(BUILT) ## the extension, in place

$(INSTALLED): requirements-dev.txt
	test -x $(BIN)/python || { $(PYTHON) -c '$(CHECK_PYTHON)' && $(PYTHON) -m venv $(VENV); }
	$(BIN)/pip install --disable-pip-version-check -r requirements-dev.txt
	touch $@

# The directory csrc is a prerequisite too: its time changes when a file is added or removed.
$(BUILT): $(INSTALLED) CMakeLists.txt pyproject.toml $(NATIVE) $(shell find csrc -type d)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	rm -f $(VENV)/.built-*
	touch $@

test: lit pytest lint ## all that CI runs

lit: $(BUILT) ## the tests of text: dialects, passes, stages, tools
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lit -j $(JOBS) tests/lit

pytest: $(BUILT) ## the tests of tests/py, samples of the long ones
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/py

# Every case of the tests of which `pytest` runs samples, and more of what is drawn by chance.
campaign: $(BUILT) ## every case of tests/py, and more of what is drawn by chance
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --campaign tests/py

# From the sources into an environment of its own, with all that pip installs; then the short form of the README.
install: $(BUILT) ## pip install . into a fresh environment, and the README's short form there
	$(BIN)/python -m pytest --install tests/py/tools/test_installation.py

# Models and steps of installed packages, each beside eager torch: counts, and what is missing by the models that need it.
real: $(BUILT) $(REAL_INSTALLED) ## models of installed packages beside eager torch
	$(BIN)/python -m tests.real --jobs $(JOBS)

$(REAL_INSTALLED): $(INSTALLED) requirements-real.txt
	$(BIN)/pip install --disable-pip-version-check --no-deps -r requirements-real.txt
	touch $@

demo: $(BUILT) ## trains a digit classifier and shows what runs
	$(BIN)/python examples/digits.py

lint: $(BUILT) ## ruff, basedpyright, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/clang-format --dry-run --Werror $(NATIVE) $(NATIVE_TESTS)

wheel: $(BUILT) ## a portable wheel in dist, and its kernels at each level of x86-64
	scripts/wheel.sh

bench: $(BUILT) $(BENCH_INSTALLED) ## speed on this CPU
	$(BIN)/python bench/train_step.py

$(BENCH_INSTALLED): $(INSTALLED) requirements-bench.txt
	$(BIN)/pip install --disable-pip-version-check -r requirements-dev.txt -r requirements-bench.txt
	touch $@

# The pages of docs/ as a site, in build/site; a broken link is an error.
docs: $(DOCS_INSTALLED) ## the site of documents, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(DOCS_INSTALLED): $(INSTALLED) requirements-docs.txt
	$(BIN)/pip install --disable-pip-version-check -r requirements-dev.txt -r requirements-docs.txt
	touch $@

format: $(INSTALLED) ## the formatters
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE) $(NATIVE_TESTS)

clean: ## removes builds and wheels
	rm -rf build dist $(VENV)/.built-*
