# The book's commands. `make help` lists them.

PYTHON  ?= python3
PROFILE ?= quick
DEVICE  ?= auto
CHAPTER ?=

VENV = .venv
BIN  = $(VENV)/bin
PIP  = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help book pdf test lab bench env clean
.DEFAULT_GOAL := help

help:
	@echo "make book    execute the chapters that changed, build the site, print its path"
	@echo "             PROFILE=smoke|quick|full  DEVICE=auto|mps|cuda|cpu  CHAPTER=02"
	@echo "make pdf     the same, then print the whole book to _build/book.pdf"
	@echo "make test    lint, unit tests, the chapters on smoke, the site in a real browser"
	@echo "make lab     open JupyterLab on the chapters"
	@echo "make bench   measure this machine into results/, then the project's own code"
	@echo "make env     make the environment alone"
	@echo "make clean   remove what was built; the environment stays"

book: env
	@$(BIN)/macgpu run --profile "$(PROFILE)" --device "$(DEVICE)" --chapter "$(CHAPTER)"
	@$(BIN)/macgpu site --profile "$(PROFILE)"

pdf: book $(VENV)/.tests-installed
	@$(BIN)/python -m tests.browser
	@$(BIN)/python -m macgpu.publish.pdf _build/html _build/book.pdf

test: $(VENV)/.tests-installed
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/python -m tests.browser
	@$(BIN)/python -m pytest

lab: env
	@$(BIN)/jupyter lab --notebook-dir notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

bench: env
	@$(BIN)/macgpu bench all --profile "$(PROFILE)" --device "$(DEVICE)"
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

env: $(VENV)/.installed

# An environment that was left half made, without pip, is made again.
$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) macgpu/bootstrap.py
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "making $(VENV), once; torch is large, so this takes some minutes"; $(PYTHON) -m venv --clear $(VENV); }
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
