# Every target sets up .venv by itself, once; it is set up again when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all bits lint bench mutants docs dist sbom clean

demo: .venv/.ready
	$(BIN)/dpose demo

# A worker a processor, each on one thread: threads that wait for each other's turn slow all of them down.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test: .venv/.ready
	$(TESTS) -m "not slow" --durations=20

# With what is slow and rarely breaks: hundreds of kills, whole grids, a browser at every width, every kind of arithmetic.
test-all: .venv/.ready
	$(TESTS)
	$(BIN)/python tests/kinds.py

# What depends on the last bit, again under each kind of arithmetic that this processor can stand for.
bits: .venv/.ready
	$(BIN)/python tests/kinds.py

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.ready
	for b in benchmarks/[!_]*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

# goes on where it was stopped; results in .mutants/
mutants: .venv/.ready
	$(BIN)/python tests/mutants/run.py

# build/docs/index.html: opens without a server, search included; nothing is fetched
docs: .venv/.ready
	$(BIN)/python -m sphinx -W --keep-going -q -E -a -b html docs build/docs
	@echo "Open build/docs/index.html"

# dist/: the wheel and the source distribution, with the weights and fonts that come with dpose
dist: .venv/.ready
	$(BIN)/python -m build --no-isolation --outdir dist .

# build/sbom.json, without a network; then what of it has known faults, which asks one and says so where it got no answer
sbom: .venv/.ready
	$(BIN)/python tools/sbom.py build/sbom.json

clean:
	rm -rf .venv build dist runs .mutants src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"dpose needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
