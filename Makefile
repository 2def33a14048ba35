# `make demo` and `make test` set up everything they need in .venv on a bare machine with Python 3.11 or later.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-bench soak lint types coverage docs dist bench reproduce clean weights

demo: $(READY)
	$(BIN)/upmri demo --out demo

# Compiled modules are kept for processes that tests start, also where the environment says that Python writes none.
# Three processes for two cores: tests of servers and of other programs wait for most of their time.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

# The bridges to other packages, each against the real one.
test-bench: $(VENV)-bench/.ready
	$(VENV)-bench/bin/python -m pytest tests/interop

# What `make test` leaves out, and the tests of drawn examples with ten times as many; those that would be the same are not
# run again.
soak: $(READY)
	UPMRI_SOAK=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "soak or hypothesis"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/lint.py
	$(BIN)/python benchmarks/reproduce.py --check

types: $(READY)
	$(BIN)/mypy

# Where tests are thin: the least covered modules first, and every line in htmlcov/.
coverage: $(READY)
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -n 2 --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report

# The pages, in docs/_build/html; the gallery's scripts run for it. Nothing is fetched.
docs: $(VENV)-docs/.ready
	OMP_NUM_THREADS=1 $(VENV)-docs/bin/python -m sphinx -E -W --keep-going -n -q docs docs/_build/html

# Wheel and sdist, the wheel in an environment that has nothing else, and the list of what that environment holds (SBOM).
dist: $(READY)
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(call packages,build/dist,run,--report build/locked.json)
	$(call pip,build/dist) --no-deps dist/*.whl
	build/dist/bin/python packaging/sbom.py dist/*.whl build/locked.json
	cd build && dist/bin/upmri doctor && dist/bin/upmri demo --out demo

bench: $(VENV)-bench/.ready
	$(VENV)-bench/bin/python benchmarks/solver.py
	$(VENV)-bench/bin/python benchmarks/espirit.py

# The weights for comparison, from the history into models/ (models/README.md).
weights:
	git restore --source 4e1bf7c -- 'models/*.safetensors'
	git restore --source 7401cc5 -- models/brain-upmri-more.safetensors
	git restore --source 6dbf843 -- 'models/*.safetensors'
	git restore --source c77f242 -- models/brain-upmri-paper-peak.safetensors
	git show 23b6f90:src/upmri/weights/brain.safetensors > models/brain-upmri.safetensors

# Every published number again, from UPMRI_DATA; QUICK=1 compares a few rows on the CPU, ONLY="cine maps" runs some parts.
reproduce: $(READY) weights
	$(BIN)/python benchmarks/reproduce.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-docs demo dist build htmlcov docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache

# The stamp is newer than what it was made from, so a second run installs nothing.
$(READY): pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	$(call environment,$(VENV),dev)

$(VENV)-docs/.ready: pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	$(call environment,$(VENV)-docs,docs)

# The peers import torchvision, which must stay out of the project's own environment.
$(VENV)-bench/.ready: pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	$(call environment,$(VENV)-bench,bench)

pip = $(1)/bin/python -m pip install --quiet --disable-pip-version-check

# An environment with the packages of requirements/NAME.txt: pip refuses a file that has none of the SHA-256 listed there.
# torch has another file for every device, and pip takes the one of this machine's index; so it is pinned by its version alone.
define packages
	$(PYTHON) -m venv $(1)
	$(call pip,$(1)) --require-hashes --no-deps -r requirements/$(2).txt $(3)
	$(call pip,$(1)) -c constraints.txt torch
endef

# The same with the project itself, built by the locked build tools, and a check that nothing is missing.
define environment
	$(call packages,$(1),$(2),)
	$(call pip,$(1)) --no-deps --no-build-isolation -e .
	$(1)/bin/python -m pip check --disable-pip-version-check
	touch $(1)/.ready
endef
