# Everything from a fresh clone: each goal makes the virtual environment it needs first.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test browser check docs wheel mutants chaos proto keywords acceptance bench figures lock clean

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py

# Hundreds of processes import the package: each would compile it again where bytecode is not written.
test: $(VENV)/installed browser
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile

# Chromium, for the tests of the dashboard; where it cannot be had, those tests say so and the rest goes on.
browser:
	-tests/dashboard/install_browser.sh

check: $(VENV)/installed
	$(BIN)/ruff check src tests examples docs
	$(BIN)/ruff format --check src tests examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports

# Builds sdist and wheel, installs the wheel into a fresh environment and runs it there: about half a minute.
wheel: $(VENV)/installed
	$(BIN)/python tests/wheel.py

# These pages as a site that needs no network: site/index.html. A warning is an error.
docs: $(VENV)/installed
	$(BIN)/python docs/build.py

mutants: $(VENV)/installed
	$(BIN)/python tests/mutants.py

# Everything that can go wrong with a federation, at full length: about a quarter of an hour.
chaos: $(VENV)/installed
	AFEDPG_FUZZ=100000 $(BIN)/python -m pytest tests/chaos tests/network tests/cluster --long

# Writes the protocol's Python classes again after federation.proto has changed.
proto: $(VENV)/installed
	cd src/afedpg/protocol && $(abspath $(BIN))/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. federation.proto

# Writes the typed keywords of `train` again after a setting in config.py has changed.
keywords: $(VENV)/installed
	$(BIN)/python tests/keywords.py

# The learning rows that results are judged by, stored under results/acceptance with their commit; hours.
acceptance: $(VENV)/installed
	$(BIN)/python -m afedpg.acceptance

figures: $(VENV)/installed
	$(BIN)/afedpg reproduce all --scale smoke

bench: $(VENV)/installed
	$(BIN)/afedpg bench

# Installs exactly the locked versions, so that a run can be repeated bit for bit.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Writes the versions of this environment down as the locked ones.
lock:
	$(BIN)/python -m pip freeze --exclude-editable --exclude afedpg | sed 's/+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
