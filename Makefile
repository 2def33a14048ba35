# `make demo` and `make test` set up everything they need in .venv on a bare machine with Python 3.11 or later.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test soak lint types bench clean

demo: $(READY)
	$(BIN)/upmri demo --out demo

test: $(READY)
	$(BIN)/python -m pytest -n 2

soak: $(READY)
	UPMRI_SOAK=1 $(BIN)/python -m pytest -n 2 -m "soak or not soak"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(VENV)-bench/.ready
	$(VENV)-bench/bin/python benchmarks/solver.py
	$(VENV)-bench/bin/python benchmarks/espirit.py

clean:
	rm -rf $(VENV) $(VENV)-bench demo .pytest_cache .mypy_cache .ruff_cache

# The stamp is newer than what it was made from, so a second run installs nothing.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# The peers import torchvision, which must stay out of the project's own environment.
$(VENV)-bench/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	touch $@
