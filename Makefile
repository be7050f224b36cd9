# The book's commands. `make help` lists them.

PYTHON  ?= python3
PROFILE ?= quick
DEVICE  ?= auto
CHAPTER ?=

VENV = .venv
BIN  = $(VENV)/bin
PIP  = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help book test lab bench env clean
.DEFAULT_GOAL := help

help:
	@echo "make book    execute the chapters that changed, build the site, print its path"
	@echo "             PROFILE=smoke|quick|full  DEVICE=auto|mps|cuda|cpu  CHAPTER=02"
	@echo "make test    lint, unit tests, the chapters on smoke, the site in a real browser"
	@echo "make lab     open JupyterLab on the chapters"
	@echo "make bench   benchmarks of the project's own code on this machine"
	@echo "make env     make the environment alone"
	@echo "make clean   remove what was built; the environment stays"

book: env
	@$(BIN)/macgpu run --profile "$(PROFILE)" --device "$(DEVICE)" --chapter "$(CHAPTER)"
	@$(BIN)/macgpu site

test: $(VENV)/.tests-installed
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/python -m tests.browser
	@$(BIN)/python -m pytest

lab: env
	@$(BIN)/jupyter lab --notebook-dir notebooks

bench: env
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

env: $(VENV)/.installed

# Made anew from nothing where Python is newer than the folder, brought up to date elsewhere.
$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 10) <= v[:2] <= (3, 14) else "The book needs Python 3.10 to 3.14; $(PYTHON) is %d.%d. Name another: make book PYTHON=python3.12" % v[:2])'
	@test -x $(BIN)/python || { echo "making $(VENV), once; torch is large, so this takes some minutes"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) --requirement requirements.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.tests-installed: $(VENV)/.installed requirements-test.txt
	@$(PIP) --requirement requirements-test.txt
	@touch $@

clean:
	rm -rf _build

# For maintainers: pins all that the requirements pull in, for every Python and system at once.
.PHONY: lock
lock: $(VENV)/.tests-installed
	@$(BIN)/python -m pip install --quiet --target $(VENV)/uv uv
	@{ head -1 constraints.txt; $(VENV)/uv/bin/uv pip compile --quiet --universal --python-version 3.10 --no-python-downloads --no-header --no-annotate requirements-test.txt; } > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt
