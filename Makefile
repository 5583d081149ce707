# What people need: `make demo`, `make test`; for a change, `make test-more`; before a release, `make test-all` and `make bench`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := $(wildcard packages/*/pyproject.toml)
EDITABLE := $(patsubst %/pyproject.toml,-e %,$(PACKAGES))
WORKERS ?= auto
# Of the demo: two, each on a core of its own; one where there is one physical core. So small a model gains nothing
# from threads, which on a busy machine wait for each other.
RANKS = $(or $(filter 2,$(shell lscpu -p=CORE,SOCKET 2>/dev/null | grep '^[0-9]' | sort -u | head -2 | wc -l)),1)

# pyproject.toml switches pytest's cache off, which the runs of pytest inside of tests would write over.
REMEMBERED := -o "addopts=-ra --strict-markers --strict-config --import-mode=importlib" -o cache_dir=.pytest_cache

# Checks run in parallel.
MAKEFLAGS += --jobs=2

export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export UV_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The stock `deepspeed` command looks for its launcher, and torch for ninja, on PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo test test-more test-again test-all safety-net bench check lint types layers docs docs-open docs-browse clean

help:
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

# DeepSpeed's setup fails while DS_ACCELERATOR is set.
$(BIN)/.ready: constraints.txt requirements-dev.txt requirements-docs.txt requirements-hf.txt requirements-test.txt examples/requirements.txt $(PACKAGES)
	@echo "setting up $(VENV): two to three minutes with a fast network"
	$(PYTHON) -m venv $(VENV)
	env -u DS_ACCELERATOR ci/install $(BIN)/python torch deepspeed $(EDITABLE) -r examples/requirements.txt -r requirements-dev.txt
	touch $@

demo: $(BIN)/.ready ## train a small language model on the CPU, two ranks (about 2 minutes after set-up)
	-$(BIN)/accel doctor
	$(BIN)/accel launch --num_accelerators $(RANKS) --bind_cores_to_rank examples/train_lm.py --out runs/demo

test: $(BIN)/.ready check ## lint, types, layers and the quick tests (about 10 minutes after set-up)
	$(BIN)/python -m pytest -m "not more and not slow" -n $(WORKERS) --dist loadfile

test-more: $(BIN)/.ready ## more for a change: processes, simulated devices, wheels
	$(BIN)/python -m pytest -m "more and not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(REMEMBERED)

test-again: $(BIN)/.ready ## the tests that failed in test-more, one at a time
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --exitfirst $(REMEMBERED)

test-all: $(BIN)/.ready check ## everything, with the full storms, and each package in its own tox environment
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
	$(BIN)/tox run

# For a change that keeps behaviour: run it before and after. docs/results/situations.md must come out as it is.
safety-net: $(BIN)/.ready ## selection, bridge and situations; suite and engine of all ten against docs/results (40 minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --situations docs/results/situations.md packages/accel-core/tests/situations
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" packages/accel-core/tests/selection packages/accel-core/tests/bridge packages/accel-zero/tests
	git diff --exit-code docs/results/situations.md
	mkdir -p runs/safety-net
	set -e; for key in cpu cuda hpu klxpu mlu mps npu sdaa supa xpu; do \
	    sim="accel sim $$key --"; [ $$key != cpu ] || sim=; results=; \
	    for part in suite engine; do \
	        file=runs/safety-net/$$key.$$part.json; results="$$results $$file"; \
	        $$sim $(BIN)/python -m pytest -q -p no:cacheprovider --pyargs accel_testkit.$$part --accel $$key --results $$file; \
	    done; \
	    $(BIN)/python -m ci.feature_matrix compare $$results; \
	done

bench: $(BIN)/.ready ## the tables in docs/results
	$(BIN)/python -m benchmarks.first_use
	$(BIN)/python -m benchmarks.optimizers
	$(BIN)/python -m benchmarks.collectives
	$(BIN)/python -m benchmarks.engine
	$(BIN)/python -m benchmarks.launch
	$(BIN)/python -m benchmarks.programs
	$(BIN)/python -m benchmarks.device

check: lint types layers ## what CI checks without running anything

lint: $(BIN)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pre-commit run --all-files --hook-stage manual

types: $(BIN)/.ready
	$(BIN)/mypy

layers: $(BIN)/.ready
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m ci.api
	$(BIN)/python -m ci.budgets
	-$(BIN)/gitlint --commits origin/main..HEAD

# The site needs neither torch nor the packages.
$(BIN)/.docs: requirements-docs.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -r requirements-docs.txt
	touch $@

# SPHINXOPTS="-t online" makes links into the references of Python, torch and DeepSpeed, for which it needs the network.
docs: $(BIN)/.docs ## the site of docs/, into the folder site (half a minute)
	$(BIN)/python -m sphinx -W -n --keep-going -b html $(SPHINXOPTS) docs site

docs-open: docs ## the same, served on this machine at http://127.0.0.1:8000 (PORT=N for another port)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(or $(PORT),8000)

# In Chromium, which has to be installed: errors, the matrix, accessibility.
docs-browse: $(BIN)/.ready ## the same, tried in a browser (`apt-get install chromium` first; 3 minutes)
	$(BIN)/pip install -q -r requirements-browser.txt
	$(BIN)/python -m pytest docs/tests/test_browser.py

clean: ## remove what the targets above made
	rm -rf $(VENV) .tox runs build dist site
