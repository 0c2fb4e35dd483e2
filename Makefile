# Needs Python 3.11 or newer and make, nothing else. Everything is installed into $(VENV).

PYTHON ?= python3
VENV   ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-input -c constraints.txt
# Each test worker gets one core: BLAS threads on top would only compete with it.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help venv demo test test-slow test-nightly lint format bench bench-quick reproduce-quick docs clean
# Kept although they are made by pattern rules.
.SECONDARY:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# An environment, once.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ornstein needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The package (editable) with one of its extras, again whenever its requirements change. The extra
# dev holds test.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "Installing ornstein[$*] into $(VENV) (a minute or two the first time) ..."
	@$(PIP) -e ".[$*]"
	@touch $@ $(if $(filter dev,$*),$(VENV)/.installed-test)

venv: $(VENV)/.installed-dev ## make .venv with all that development needs

demo: $(VENV)/.installed-sklearn ## install, then run the main job on a real data set
	@$(BIN)/ornstein demo

test: $(VENV)/.installed-test ## run the tests and the doctests
	@$(PYTEST) --durations=40 --durations-min=4

test-slow: $(VENV)/.installed-test ## run the tests marked slow
	@$(PYTEST) -m "slow and not nightly"

test-nightly: $(VENV)/.installed-test ## run the tests marked nightly
	@$(PYTEST) -m nightly

lint: $(VENV)/.installed-dev ## check style, types, imports and generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/stub.py --check
	@$(BIN)/python tools/rooms.py --check

format: $(VENV)/.installed-dev ## format the code, mend what can be mended, write generated files
	@$(BIN)/python tools/stub.py
	@$(BIN)/python tools/rooms.py
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.installed-bench ## run the benchmarks
	@$(BIN)/python -m benchmarks

bench-quick: $(VENV)/.installed-bench ## compare speed ratios with the stored ones, under 2 minutes
	@$(BIN)/python -m benchmarks --quick

reproduce-quick: $(VENV)/.installed-test ## the paper's table and figures in small, on what data are there, under 3 minutes
	@OPENBLAS_NUM_THREADS=1 $(BIN)/ornstein reproduce all --quick --out build/reproduction

docs: $(VENV)/.installed-docs ## build the documentation, warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python tools/check_site.py site
	@echo "Open site/index.html"

clean: ## remove the environment and all that was built
	@rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	@find . -type d -name __pycache__ -prune -exec rm -rf {} +
