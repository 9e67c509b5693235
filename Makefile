# Everything runs in a virtual environment of its own; `make demo` and `make test` set it up.
PYTHON ?= python3.11
VENV ?= .venv
BIN = $(VENV)/bin
DEMO ?= demo
MINUTES ?= 3
MXNET_VENV ?= .venv-mxnet

.PHONY: demo mxnet test test-all lint types build sanitize clean help

help:
	@echo "make demo      set up, train three minutes, export, serve, play; then look at the games"
	@echo "make test      set up and pass the tests (under 15 minutes)"
	@echo "make test-all  the same with the tests marked slow"
	@echo "make lint      ruff and mypy alone"
	@echo "make build     compile the game engine again after a change in a csrc folder"
	@echo "make mxnet     set up the MXNet baseline, in a virtual environment of its own"
	@echo "make sanitize  a million random turns under AddressSanitizer and UBSan"

# A stamp for each set of packages: a second call installs nothing.
PACKAGING = pyproject.toml setup.py constraints.txt
COMPILED = $(wildcard */csrc/*.c */csrc/*.h)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.packages: $(PACKAGING) | $(BIN)/python
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel -e ".[rllib,server,procgen,dev]"
	@touch $@ $(VENV)/.engine

$(VENV)/.engine: $(COMPILED) $(VENV)/.packages
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

build: $(VENV)/.engine

$(MXNET_VENV)/.packages: rllib_src/mxnet_baseline/requirements.txt
	$(PYTHON) -m venv $(MXNET_VENV)
	$(MXNET_VENV)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

mxnet: $(MXNET_VENV)/.packages

demo: $(VENV)/.engine
	$(BIN)/python tools/demo.py --folder $(DEMO) --minutes $(MINUTES)

system-packages:
	@tools/system_packages.sh

lint: $(VENV)/.engine
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: system-packages lint
	$(BIN)/pytest -m "not slow" --cov --cov-report=term:skip-covered

test-all: system-packages lint
	$(BIN)/pytest --cov --cov-report=term:skip-covered

sanitize:
	tools/sanitize.sh

clean:
	rm -rf $(VENV) $(MXNET_VENV) build dist *.egg-info $(DEMO)
