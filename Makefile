PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/installed
DEVELOPMENT := .venv/development

DEVICE_PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# One thread a process: the networks are small, and two processes on two cores beat two threads in one.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: demo test check format soak bench device clean docs

demo: $(INSTALLED)  ## train a network with 1 % of its weights on DIGITS, beside a dense one and l1, and write it as C
	$(BIN)/gossamer train digits --target-params 1% --run-dir runs/demo --overwrite
	$(BIN)/gossamer export runs/demo --c runs/demo/digits.c --check

test: $(DEVELOPMENT)  ## run the tests
	$(BIN)/pytest -n 2 --dist worksteal

check: $(DEVELOPMENT)  ## formatter, linter, type checker, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist worksteal

soak: $(DEVELOPMENT)  ## a thousand random networks, two thousand under sanitizers, a thousand kills, 100,000 damaged files; two hours
	PYTHONPATH=. $(BIN)/python -W ignore -m tests.shrinking.soak 1000 | tee tests/shrinking/soak.log
	PYTHONPATH=. $(BIN)/python -W ignore -m tests.inference.soak 2000 | tee tests/inference/soak.log
	PYTHONPATH=. $(BIN)/python -W ignore -m tests.lab.soak.kills 1000 | tee tests/lab/soak/kills.log
	PYTHONPATH=. $(BIN)/python -W ignore -m tests.lab.soak.damage 100000 | tee tests/lab/soak/damage.log

bench: $(INSTALLED)  ## the benchmarks of docs/performance.md and docs/native.md, on an otherwise idle machine
	$(BIN)/gossamer bench --threads 1 --output benchmarks/results --page docs/performance.md --page docs/native.md --page README.md

device: $(INSTALLED)  ## the DIGITS network on an emulated ARM Cortex-M4; installs compilers and emulators first (apt)
	dpkg --status $(DEVICE_PACKAGES) > /dev/null || $(SUDO) apt-get install --yes $(DEVICE_PACKAGES)
	$(BIN)/python examples/microcontroller/run.py --dense

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

docs: $(INSTALLED)  ## the documentation site, in build/site; warnings are errors
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[lab,docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:
	rm -rf .venv runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
