# Everything runs in .venv, which is made on first use and updated when pyproject.toml changes.
#   make demo            train a named-entity tagger on the embedded data; installs the library alone
#   make test            lint and documentation, then the tests of every change; installs the development tools too
#   make test-changed    the tests that the changes of the working tree can reach
#   make test-long       the other tests: more seeds, sizes and combinations; before a release
#   make test-all        both
#   make coverage        the tests of every change, and the lines that none of them runs
#   make lint            style, formatting and types
#   make docs            the documentation, as pages in build/site
#   make test-portable   the numerical tests, without the special instructions of this machine's processor
#   make gpu-compile     every kernel for GPUs, compiled without one: registers, shared memory, and spills, which fail
#   make gpu             on a machine with a GPU: the tests that wait for one, and the table of times, in runs/gpu.md
#   make wheel           a wheel with machine code for this Python and numba, for x86-64-v3 and v4, in dist
#   make test-oldest     the numerical tests, with the oldest versions that pyproject.toml allows, in .venv-oldest

# lint beside docs
MAKEFLAGS += --jobs=2

PYTHON ?= python3
BIN := .venv/bin

NUMERICAL := tests/compiled tests/models/test_bilstm.py tests/problems tests/solvers tests/structures \
  tests/test_costs.py tests/test_history.py tests/test_layers.py tests/test_losses.py tests/test_metrics.py \
  tests/test_kernels.py tests/test_processes.py tests/test_scores.py tests/test_sequences.py \
  tests/test_slack_rescaling.py tests/test_smoothing.py
IN_PARALLEL := --numprocesses=auto --dist=worksteal
PORTABLE := ATEN_CPU_CAPABILITY=default NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=$(CURDIR)/build/numba-portable \
  TORCHINDUCTOR_CACHE_DIR=$(CURDIR)/build/inductor-portable OPENBLAS_CORETYPE=Prescott MKL_CBWR=COMPATIBLE

.PHONY: demo test test-changed test-long test-all coverage lint docs gpu gpu-compile wheel test-portable test-oldest

demo: .venv/installed
	$(BIN)/structsmooth train ner --words-only --out runs/demo --overwrite

test: lint docs
	$(BIN)/pytest $(IN_PARALLEL)

test-changed: .venv/installed-dev
	$(BIN)/pytest $(IN_PARALLEL) $$($(BIN)/python tests/changed.py)

test-long: .venv/installed-dev
	$(BIN)/pytest $(IN_PARALLEL) -m long

test-all: test test-long

# Apart from test: counting lines takes half of the time again.
coverage: .venv/installed-dev
	$(BIN)/pytest --cov $(IN_PARALLEL)

# Other processors round differently, and so does another number of threads.
test-portable: .venv/installed-dev
	$(PORTABLE) OMP_NUM_THREADS=1 $(BIN)/pytest $(IN_PARALLEL) $(NUMERICAL)
	$(PORTABLE) OMP_NUM_THREADS=2 $(BIN)/pytest $(IN_PARALLEL) $(NUMERICAL)

gpu: .venv/installed-dev
	$(BIN)/pytest tests/interpreted/chains.py tests/interpreted/programs.py tests/interpreted/solvers.py
	$(BIN)/pytest tests/structures/test_contract.py -k other_devices
	$(BIN)/python -m scripts gpu --out runs/gpu.md

gpu-compile: .venv/installed-dev
	$(BIN)/python -m scripts compile_kernels

wheel: .venv/installed-dev
	$(BIN)/python -m scripts wheel --out dist

test-oldest: .venv-oldest/installed
	.venv-oldest/bin/pytest $(IN_PARALLEL) $(NUMERICAL)

lint: .venv/installed-dev build/typings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/user_program.py
	$(BIN)/basedpyright --level error tests/user_program.py

# Links show MkDocs the sources as they install. NO_MKDOCS_2_WARNING silences an advertisement, not warnings about our pages.
docs: .venv/installed-dev
	rm -rf build/sources
	mkdir -p build/sources/structsmooth
	ln -s $(CURDIR)/structsmooth/* $(CURDIR)/models $(CURDIR)/tasks build/sources/structsmooth/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

.venv-oldest/installed: pyproject.toml tests/oldest.txt
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --constraint tests/oldest.txt --editable '.[test]'
	touch $@

# models/ and tasks/ install as structsmooth.models and structsmooth.tasks. Python finds them through a hook of the editable
# install; type checkers, which do not run hooks, find them through these links.
build/typings:
	mkdir -p $@/structsmooth
	ln -sfn ../../../structsmooth/__init__.py ../../../models ../../../tasks $@/structsmooth/
