PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/installed
DEVELOPMENT := .venv/development

# One thread a process: the networks are small, and two processes on two cores beat two threads in one.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: demo test check format soak bench clean

demo: $(INSTALLED)  ## train a sparse network on DIGITS and show what is left of it
	$(BIN)/gossamer train digits --run-dir runs/demo --overwrite

test: $(DEVELOPMENT)  ## run the tests
	$(BIN)/pytest -n 2

check: $(DEVELOPMENT)  ## formatter, linter, type checker, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

soak: $(DEVELOPMENT)  ## shrink a thousand random networks; ten minutes
	PYTHONPATH=. $(BIN)/python -W ignore -m tests.shrinking.soak 1000 | tee tests/shrinking/soak.log

bench: $(INSTALLED)  ## the benchmarks of docs/performance.md, on an otherwise idle machine
	$(BIN)/gossamer bench --threads 1 --output benchmarks/results --page docs/performance.md

format: $(DEVELOPMENT)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lab]'
	touch $@

# What the tests need besides: the frameworks of the adapters, linter, type checker.
$(DEVELOPMENT): $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lab,dev]'
	touch $@

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
