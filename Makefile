# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Folder of the results: of `make demo`, `make reproduce` and `make bench`, each with a default of its own.
OUT ?= demo-output
# The lowest Python of pyproject.toml, and an environment with the lowest version of every dependency.
PYTHON_LOWEST ?= python3.11
VENV_LOWEST ?= .venv-lowest
BIN_LOWEST := $(VENV_LOWEST)/bin

.PHONY: demo check test test-lowest lint docs reproduce bench clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("icofactor needs Python 3.11 or later, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@ $(VENV)/.installed

$(VENV_LOWEST)/.installed: pyproject.toml packaging/lowest.py
	$(PYTHON_LOWEST) -m venv $(VENV_LOWEST)
	$(BIN_LOWEST)/python packaging/lowest.py > $(VENV_LOWEST)/constraints.txt
	$(BIN_LOWEST)/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV_LOWEST)/constraints.txt --editable '.[test]'
	touch $@

# Simulate a cohort, factorize it, write maps, loadings and a report.
demo: $(VENV)/.installed
	$(BIN)/icofactor demo $(OUT) --overwrite

# Two processes of one BLAS thread each; what one has left over, the other takes.
PYTEST_OPTIONS := -n 2 --dist worksteal
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS)
QUICK := -m "not slow and not hostile and not real_data"

# Before every commit, a minute and a half: lint, types, import layers, the size of every room and the quick tests.
check: lint
	$(PYTEST) $(QUICK)

# Lint, types, import layers, sizes, all tests.
test: lint
	$(PYTEST)

# The quick tests with the lowest versions that pyproject.toml declares; fails if others are installed.
test-lowest: $(VENV_LOWEST)/.installed
	$(BIN_LOWEST)/python packaging/lowest.py --check
	OMP_NUM_THREADS=1 $(BIN_LOWEST)/python -m pytest $(PYTEST_OPTIONS) $(QUICK)

# The site, in docs/_build/html: the tutorials run, and every warning is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

# The experiments of the paper and its claims, about half an hour: make reproduce [OUT=folder] [ARGS="--quick"]
reproduce: OUT = reproduction-output
reproduce: $(VENV)/.installed-bench
	$(BIN)/python -m reproduction $(OUT) $(ARGS)

# Speeds, other tools, reproducibility; on idle cores: make bench [OUT=folder] [ARGS="speeds --quick"]
bench: OUT = benchmarks/results
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --out $(OUT) $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/room_sizes.py
	$(BIN)/mypy & types=$$!; $(BIN)/lint-imports; layers=$$?; wait $$types && exit $$layers

clean:
	rm -rf $(VENV) $(VENV_LOWEST) $(OUT) docs/_build docs/tutorials docs/reference/commands docs/reference/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
