# Two commands do all set-up: `make demo` and `make test`. Each builds its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three on two cores: a test that waits for a process leaves its core to the others.
JOBS ?= 3
# For the demo, where the machine has no torch: the one the tests use, built for CPUs.
TORCH := $(shell sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_SIZE := about 200 MB
HAS_TORCH := import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)
TORCH_HOME := import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])
SITE := import sysconfig; print(sysconfig.get_path("purelib"))
# The laws that hypothesis tries on drawn examples.
LAWS := tests/readers/test_trace_fuzz.py tests/examine/test_never_wrong.py tests/examine/test_checks.py \
	tests/causes/test_laws.py tests/step tests/work tests/replay tests/facts tests/fixes/test_bounds.py

.PHONY: demo test lint format types contracts pytest soak score docs bench browser screenshots clean

# The machine's torch is used if it has one that can be imported. A Python that is in an environment itself does
# not hand that environment on: then the path is.
$(VENV)/.runtime: pyproject.toml
	@echo "Setting up findwall in $(VENV) (half a minute, once)."
	@if $(PYTHON) -c "import torch" 2>/dev/null; \
	then $(PYTHON) -m venv --system-site-packages $(VENV) \
	&& { $(BIN)/python -c '$(HAS_TORCH)' \
	|| $(PYTHON) -c '$(TORCH_HOME)' >"$$($(BIN)/python -c '$(SITE)')/machine-torch.pth"; }; \
	else $(PYTHON) -m venv $(VENV); fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . 2>$(VENV)/pip.log \
	|| { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/python -c '$(HAS_TORCH)' || { \
	echo "This machine has no torch: fetching $(TORCH) for CPUs into $(VENV), $(TORCH_SIZE), once."; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 \
	--index-url $(TORCH_INDEX) $(TORCH) 2>$(VENV)/pip.log \
	|| echo "It could not be fetched ($(VENV)/pip.log says why): a recorded trace is read instead."; }
	@$(BIN)/findwall demo

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

# Compiled once: where PYTHONDONTWRITEBYTECODE is set, each of hundreds of processes would do it again. Assertions
# are taken as they are, for to rewrite them takes each worker ten seconds. Up to five that fail beside others are
# run again alone, with their values: these decide, as some start real jobs, and others may have had the cores.
AT_MOST_FIVE := import json, sys; sys.exit(len(json.load(open(".pytest_cache/v/cache/lastfailed"))) > 5)
pytest: $(VENV)/.dev
	@$(BIN)/python -m compileall -q src tests benchmarks
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --assert=plain \
	|| { $(BIN)/python -c '$(AT_MOST_FIVE)' && echo "Again, alone:" \
	&& $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none; }

# Long counts of what the tests try a little of. SOAK_KILLS, SOAK_JOBS, SOAK_FOLDERS, SOAK_TRACES, SOAK_SEED and
# FINDWALL_FUZZ_EXAMPLES set how many.
soak: $(VENV)/.dev
	cd tests && $(abspath $(BIN))/python -m soak
	$(BIN)/python -m pytest -n $(JOBS) -m long tests
	FINDWALL_FUZZ_EXAMPLES=$${FINDWALL_FUZZ_EXAMPLES:-500} $(BIN)/python -m pytest -n $(JOBS) $(LAWS)

# Every bar that an earlier issue set and that needs no GPU, in one table.
score: $(VENV)/.dev
	$(BIN)/python benchmarks/score.py

docs: $(VENV)/.dev
	$(BIN)/python -m findwall explain --write docs

# A browser for the tests of the page, and axe-core, which checks that everyone can read it. Neither is needed
# to use findwall.
AXE := axe-core-4.10.2.tgz
AXE_SHA256 := 9ea2d2d6917da998122bdacfd3b473e31ead53f4b87146c716a12edf89158100

browser:
	@command -v chromium chromium-browser google-chrome >/dev/null \
	|| { apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core; } \
	|| { echo "Chromium could not be installed: the tests of the page in a browser skip." >&2; exit 1; }
	@mkdir -p .browser
	@test -f .browser/package/axe.min.js || { cd .browser && npm pack --silent $(AXE:axe-core-%.tgz=axe-core@%) >/dev/null \
	&& echo "$(AXE_SHA256)  $(AXE)" | sha256sum --check --quiet \
	&& tar --extract --gzip --file $(AXE) package/axe.min.js; } \
	|| { rm -f .browser/$(AXE); echo "axe-core could not be fetched (it takes npm): its test skips." >&2; }

screenshots: $(VENV)/.dev
	$(BIN)/python docs/make_screenshots.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/ingest.py

clean:
	rm -rf $(VENV) .browser .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
