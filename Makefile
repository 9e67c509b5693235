# Everything runs in a virtual environment of its own; `make demo` and `make test` set it up.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
DEMO ?= demo
MINUTES ?= 3

.PHONY: help demo mxnet procgen-original site notebooks aws-receipt image-check test test-all test-python system-packages lint build wheels sanitize mutants clean

help:
	@echo "make demo      a game at once; set up, train three minutes, export, serve, play; then look at the games"
	@echo "make mxnet     install MXNet for the baseline MXNET, on Python 3.11"
	@echo "make procgen-original  install the original Procgen, on Python 3.11 or 3.12"
	@echo "make test      set up and pass the tests (about 30 minutes on two cores)"
	@echo "make test-all  the same with the tests marked slow, and what they cover"
	@echo "make test-python PYTHON=python3.13  game, heuristics, server and training on another Python"
	@echo "make site      build the documentation site into site/"
	@echo "make notebooks  run all notebooks again, and keep what they show"
	@echo "make aws-receipt ACCOUNT=NUMBER  ask your AWS account whether it works there; at most 2 dollars"
	@echo "make image-check  build the training image, and run it as SageMaker does; as root, 30 GB"
	@echo "make lint      run ruff and mypy"
	@echo "make build     compile the engine and the search again after a change in a csrc folder"
	@echo "make wheels    the source distribution and a wheel for each kind of machine, into dist"
	@echo "make mutants MUTANTS=server  whether the tests notice a broken line; all modules without MUTANTS"
	@echo "make sanitize  a million random turns and 5,000 searches under AddressSanitizer and UBSan"

# A stamp for each set of packages: a second call installs nothing.
PACKAGING = pyproject.toml setup.py constraints.txt
COMPILED = $(shell find battlesnake_gym heuristics -name "*.[ch]")

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

INSTALL = $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel

$(VENV)/.packages: $(PACKAGING) | $(BIN)/python
	$(INSTALL) -e ".[rllib,server]"
	@touch $@

$(VENV)/.test-packages: $(VENV)/.packages
	$(INSTALL) -e ".[rllib,server,mcp,trainers,procgen,sagemaker,sagemaker-simulator,dev]"
	@touch $@

# Wheels that require numpy<2 but run with numpy 2, each with a stamp of its own.
WHEELS = rllib_common/sagemaker_rl/job/pinned_wheels.py
$(VENV)/.mxnet $(VENV)/.procgen-original: $(VENV)/.%: $(WHEELS) $(VENV)/.packages
	$(BIN)/python -m sagemaker_rl.job.pinned_wheels $*
	@touch $@

mxnet: $(VENV)/.mxnet
procgen-original: $(VENV)/.procgen-original

# The old ones go first: a source that does not compile must not leave yesterday's in its place.
$(VENV)/.engine: $(COMPILED) $(VENV)/.packages
	@find battlesnake_gym heuristics -name '*.so' -delete
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@$(BIN)/python -c "import battlesnake_gym.engine._engine, battlesnake_heuristics.search._search"
	@touch $@

build: $(VENV)/.engine

# The game alone, which is enough for a first one while the rest is being installed.
$(VENV)/.game: $(PACKAGING) | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

demo: $(VENV)/.game
	@$(BIN)/python tools/demo.py --first-game & $(MAKE) -s $(VENV)/.engine; made=$$?; wait; exit $$made
	$(BIN)/python tools/demo.py --folder $(DEMO) --minutes $(MINUTES)

site: $(VENV)/.test-packages $(VENV)/.engine
	$(BIN)/python tools/build_site.py site

# All of them, or those named: make notebooks NOTEBOOKS=notebooks/5_heuristics_developer.ipynb
notebooks: $(VENV)/.test-packages $(VENV)/.engine
	$(BIN)/python tools/run_notebooks.py $(NOTEBOOKS)

# ACCOUNT=simulated plays all of it on this machine.
aws-receipt: $(VENV)/.test-packages $(VENV)/.engine
	$(BIN)/python tools/aws_receipt.py $(ACCOUNT)

image-check: $(VENV)/.test-packages $(VENV)/.engine
	PYTHON=$(BIN)/python tools/image_check.sh

system-packages:
	@tools/system_packages.sh

lint: $(VENV)/.test-packages $(VENV)/.engine
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One process a core; a file stays in one process, since its tests share a Ray or a server.
# pytest-xdist 3.8 may wait forever after it restarts a worker that crashed. Without restarts, the
# crash is one failed test, and the remaining tests of its file do not run.
PROCESSES = -n auto --dist loadfile --max-worker-restart=0
PYTEST = $(BIN)/pytest $(PROCESSES) --durations=20

test: system-packages lint mxnet procgen-original
	$(PYTEST) -m "not slow"

# With coverage, which triples the time that Python takes.
test-all: system-packages lint mxnet procgen-original
	$(PYTEST) --cov --cov-report=term:skip-covered

# Game, heuristics, server and training with their tests on another Python, in an environment of its
# own; the compiled parts are of the stable ABI, so one build serves all.
OTHER = .venv-$(notdir $(PYTHON))
test-python:
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install -q --disable-pip-version-check -c constraints.txt setuptools wheel -e ".[rllib,server,mcp,dev]"
	$(OTHER)/bin/pytest $(PROCESSES) -m "not slow" \
		tests/battlesnake_gym tests/heuristics tests/server tests/mabs \
		battlesnake_gym heuristics server rllib_src/battlesnake_rl/mabs

# Without the packages that training needs.
wheels: | $(BIN)/python
	$(INSTALL) build ziglang abi3audit
	rm -rf dist
	$(BIN)/python tools/build_wheels.py dist
	$(BIN)/abi3audit --strict dist/*.whl

sanitize:
	tools/sanitize.sh

mutants: $(VENV)/.test-packages $(VENV)/.engine
	$(BIN)/python tools/mutants.py $(MUTANTS)

clean:
	rm -rf $(VENV) build dist *.egg-info $(DEMO)
