# The commands of shardir. `make` alone lists them.

PYTHON ?=
VENV ?= .venv
BIN := $(VENV)/bin

# Tests start hundreds of Python processes, and each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.demo ## train a digit classifier under four placements
	$(BIN)/python examples/digits.py

.PHONY: test
test: $(VENV)/.test ## everything that CI runs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs=2 types tests

# The types take minutes on one core, which the tests do not wait for.
.PHONY: types
types: $(VENV)/.test
	$(BIN)/mypy

.PHONY: tests
tests: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist worksteal
	SHARDIR_NATIVE_DISPATCH=0 $(BIN)/pytest -n 2 -q --dist worksteal tests/frontend/dispatch tests/frontend/arrays

.PHONY: test-long
test-long: $(VENV)/.test ## all tests, also those that make test samples, with two thousand random programs each, and several launchers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check ray
	$(BIN)/pytest -n 2 --long
	SHARDIR_TEST_LAUNCHER=launch $(BIN)/pytest -n 2 tests/backends/distributed tests/frontend/pipelines/test_pipeline_processes.py
	SHARDIR_TEST_LAUNCHER=torchrun $(BIN)/pytest -n 2 tests/backends/distributed/test_programs.py

.PHONY: fuzz
fuzz: $(VENV)/.jax ## compare propagation with the real Shardy until stopped
	$(BIN)/python -m tests.shardy.fuzz

.PHONY: fuzz-programs
fuzz-programs: $(VENV)/.test ## run random programs on random meshes until one goes wrong
	$(BIN)/python -m tests.passes.fuzz

.PHONY: array-api
array-api: $(VENV)/.test ## the Array API's own tests: make array-api CHECKOUT=../array-api-tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r "$(CHECKOUT)/requirements.txt"
	$(BIN)/python -m tests.array_api "$(CHECKOUT)"

.PHONY: jax-tests
jax-tests: $(VENV)/.test ## JAX's own tests of public names: make jax-tests CHECKOUT=../jax
	$(BIN)/python -m tests.jax_suite "$(CHECKOUT)"

.PHONY: jax-documents
jax-documents: $(VENV)/.test ## pages written for JAX, run as they stand: make jax-documents FOLDER=../pages
	$(BIN)/python -m tests.jax_documents "$(FOLDER)"

.PHONY: mutation
mutation: $(VENV)/.test ## guards that no test needs: make mutation FILES=passes/simplify
	$(BIN)/python -m tests.mutation $(FILES)

.PHONY: sanitize
sanitize: $(VENV)/.test ## the C extension under AddressSanitizer, UBSan and ThreadSanitizer (Linux, gcc)
	$(BIN)/python -m tests.sanitizers

.PHONY: docs
docs: $(VENV)/.docs ## the documentation site, in build/docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going docs build/docs
	@echo "open build/docs/index.html"

.PHONY: bench
bench: $(VENV)/.test ## one table per file of benchmarks/
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

.PHONY: sweep
sweep: $(VENV)/.test ## the errors of vector functions over all bit patterns, in half an hour
	$(BIN)/python -m tests.backends.cpu.kernels.math.sweep --patterns all

.PHONY: gpu
gpu: $(VENV)/.test ## the emitted programs and their kernels, compiled, on a machine with a GPU
	$(BIN)/python -m tests.backends.gpu.run_on_gpu
	SHARDIR_TEST_DEVICE=cuda $(BIN)/pytest -n 0 tests/backends/gpu/kernels \
	  $(addprefix tests/backends/gpu/test_,operation_rules.py collectives.py backend.py streams.py cuda_graphs.py)
	$(BIN)/python benchmarks/gpu.py

.PHONY: format
format: $(VENV)/.test ## format the code and apply the fixes of ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: stories
stories: $(VENV)/.test ## rewrite the .ir stories of tests/ from the current output
	$(BIN)/pytest tests/stories --update-stories

.PHONY: clean
clean: ## remove what the other commands made
	rm -rf $(VENV) build dist docs/reference *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment holds what pyproject.toml says, so it is made again when that file changes.
$(VENV)/.demo $(VENV)/.test $(VENV)/.jax $(VENV)/.docs: $(VENV)/.%: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# By PYTHON where it is given, else by the first of the usual names that is new enough.
$(VENV)/.python:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv $(VENV) && touch $@ && exit 0; \
	    exit 1; \
	  fi; \
	done; \
	echo "shardir needs Python 3.11 or newer,$(if $(PYTHON), which $(PYTHON) is not, and none is on the path);" \
	  "install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	exit 1
