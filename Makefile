# Two commands do all set-up: `make demo` and `make test`. Each builds its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto
# The laws that hypothesis tries on drawn examples.
LAWS := tests/readers/test_trace_fuzz.py tests/examine/test_never_wrong.py tests/examine/test_checks.py \
	tests/walls/test_laws.py tests/structure tests/replay tests/attribute tests/fixes/test_bounds.py

.PHONY: demo test lint format types contracts pytest soak docs bench clean

$(VENV)/.runtime: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	$(BIN)/findwall demo

test: lint types contracts pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports --no-cache

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS)

# Long counts of what the tests try a little of. SOAK_KILLS, SOAK_JOBS, SOAK_FOLDERS, SOAK_TRACES, SOAK_SEED and
# FINDWALL_FUZZ_EXAMPLES set how many.
soak: $(VENV)/.dev
	cd tests && $(abspath $(BIN))/python -m soak
	FINDWALL_FUZZ_EXAMPLES=$${FINDWALL_FUZZ_EXAMPLES:-500} $(BIN)/python -m pytest -n $(JOBS) $(LAWS)

docs: $(VENV)/.dev
	$(BIN)/python -m findwall explain --write docs

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/ingest.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
