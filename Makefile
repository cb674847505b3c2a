# Everything runs in .venv, which is made on first use and updated when pyproject.toml changes.
#   make demo    train a named-entity tagger on the embedded data
#   make test    lint and documentation, then all tests with coverage
#   make lint    style, formatting and types
#   make docs    the documentation, as pages in build/site

# lint beside docs
MAKEFLAGS += --jobs=2

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint docs

demo: .venv/installed
	$(BIN)/structsmooth train ner --out runs/demo

test: lint docs
	$(BIN)/pytest --cov --numprocesses=auto --dist=worksteal

lint: .venv/installed build/typings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/user_program.py
	$(BIN)/basedpyright --level error tests/user_program.py

# Links show MkDocs the sources as they install. NO_MKDOCS_2_WARNING silences an advertisement, not warnings about our pages.
docs: .venv/installed
	rm -rf build/sources
	mkdir -p build/sources/structsmooth
	ln -s $(CURDIR)/structsmooth/* $(CURDIR)/models $(CURDIR)/tasks build/sources/structsmooth/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

# models/ and tasks/ install as structsmooth.models and structsmooth.tasks. Python finds them through a hook of the editable
# install; type checkers, which do not run hooks, find them through these links.
build/typings:
	mkdir -p $@/structsmooth
	ln -sfn ../../../structsmooth/__init__.py ../../../models ../../../tasks $@/structsmooth/
