# Both commands of the README do all the set-up, virtual environment included.
#   make demo   tune a convolution on the CPU at four correct digits
#   make test   run the tests of every feature, in minutes
# make test-all adds every parameter and every flow; make test-nightly adds what takes an hour.
# make docs builds the documentation into build/docs.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
# Two processes at least, and no more than eight: a test may start compilers and workers of its own.
PROCESSES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 8 ? 8 : n)))
PYTEST_FLAGS ?=
# Flags of the fast tier alone, such as --cov.
FAST_FLAGS ?=
PYTEST = $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal $(PYTEST_FLAGS)

# Tests start hundreds of interpreters; without byte code each would compile every module it imports.
export PYTHONDONTWRITEBYTECODE :=

# Without a C++ compiler on the machine, the one from PyPI serves.
COMPILER := $(shell command -v $${CXX:-g++} || command -v clang++)
ZIG := $(if $(COMPILER),,zig)
comma := ,

.PHONY: demo test test-all test-nightly lint types imports check docs clean

demo: $(VENV)/run.stamp
	$(BIN)/mptune tune convolution2d --backend host --max-error 1e-4 --budget 60 --seed 0

test: $(VENV)/test.stamp
	$(PYTEST) -m "not full and not nightly" $(FAST_FLAGS)

test-all: test
	$(PYTEST) -m "full and not nightly"

# Hypothesis draws new examples, and what fails is printed with a line that repeats it.
test-nightly: $(VENV)/test.stamp
	MPTUNE_FRESH_EXAMPLES=1 $(PYTEST)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

imports: $(VENV)/test.stamp
	$(BIN)/lint-imports

check: lint types imports test

docs: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "mptune needs Python 3.11 or later with its venv module (Debian: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".$(if $(ZIG),[$(ZIG)])"
	@touch $@

$(VENV)/test.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)$(if $(ZIG),$(comma)$(ZIG))]"
	@touch $@ $(VENV)/run.stamp

$(VENV)/docs.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache
