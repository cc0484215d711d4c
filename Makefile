# Every target sets up .venv by itself, once; it is set up again when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all test-newest newest bits lint bench mutants docs dist sbom clean

demo: .venv/.ready
	$(BIN)/dpose demo

# A worker a processor, each on one thread: threads that wait for each other's turn slow all of them down.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test: .venv/.ready
	$(TESTS) -m "not slow" --durations=20

# With what is slow and rarely breaks: hundreds of kills, whole grids, a browser at every width, every kind of arithmetic.
test-all: .venv/.ready
	$(TESTS)
	$(BIN)/python tests/helpers/kinds.py

# The newest of everything on the newest Python at hand, in an environment of its own, where `make test` takes what pip
# finds at first. Another Python: make test-newest NEWEST=/path/to/python3; some of the tests: NEWEST_TESTS=tests/media
NEWEST ?= $(shell for python in python3.15 python3.14 python3.13 python3.12 \
	$$(ls -dr "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[2-9].*/bin/python3 2> /dev/null); \
	do "$$python" -c "" 2> /dev/null && echo "$$python" && break; done)
NEW := .venv-newest/bin
EXTRAS := docs export imagenet postgres ray s3 security slurm studio supervision

test-newest: newest
	OMP_NUM_THREADS=1 $(NEW)/python -m pytest -n auto --dist loadfile -m "not slow" $(NEWEST_TESTS)

# The packages anew each time; where not all of them are to be had for this Python yet, what there is, and it says so.
newest: INSTALL := $(NEW)/pip install -U --upgrade-strategy eager --quiet --disable-pip-version-check
newest:
	@test -n "$(NEWEST)" || { echo "no Python newer than 3.11 is at hand; name one: NEWEST=/path/to/python3"; exit 1; }
	test "$$($(NEW)/python -V 2> /dev/null)" = "$$($(NEWEST) -V)" || $(NEWEST) -m venv --clear .venv-newest
	$(INSTALL) -e '.[dev]' || { $(INSTALL) -e '.[tests]' && for extra in $(EXTRAS); do \
		$(INSTALL) -e ".[$$extra]" || echo "without $$extra, which is not to be had for this Python"; done; }
	@$(NEW)/python -V; $(NEW)/pip list --format freeze | grep -E "^(torch|numpy|av|opencv.*|numba|timm|typer)="

# What depends on the last bit, again under each kind of arithmetic that this processor can stand for.
bits: .venv/.ready
	$(BIN)/python tests/helpers/kinds.py

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.ready
	for b in benchmarks/[!_]*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

# goes on where it was stopped; results in .mutants/. Faults with names and a sample of the others: half an hour.
# ALL=1 tries all faults, which takes hours; PART=3/24 one part of them
mutants: .venv/.ready
	$(BIN)/python tests/mutants/run.py $(if $(ALL)$(PART),--part "$(PART)",--sample 100 --seed 1)

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
	rm -rf .venv .venv-newest build dist runs .mutants src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"dpose needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
