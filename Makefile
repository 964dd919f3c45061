# Everything from a bare checkout: `make demo`, `make test`. The environment is made on the way, in .venv.
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
export JAX_PLATFORMS := cpu

.PHONY: demo quick test test-frameworks lint verify figures benchmarks overview clean

demo: $(VENV)/ready
	$(BIN)/hierattn demo --out demo --force

# what a change touches, nearest first, in at most two minutes
quick: $(VENV)/ready
	$(BIN)/python -m tests.quick

test: lint
	$(BIN)/python -m pytest

# PyTorch and Transformers have an environment of their own, which takes some 6 GB
test-frameworks: $(FRAMEWORKS)/ready
	$(FRAMEWORKS)/bin/python -m pytest tests/frameworks tests/command_line/test_capture.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy hierattn
	$(BIN)/mypy models

# the full counts that a claim needs; what is on record for the present code is not run again, and what is not is named first
verify: $(VENV)/ready
	$(BIN)/python -m pytest -m slow
	$(BIN)/python analysis/verify.py; status=$$?; $(BIN)/python analysis/overview.py; exit $$status

figures: $(VENV)/ready
	$(BIN)/python analysis/figures.py
	$(BIN)/python analysis/overview.py

benchmarks: $(VENV)/ready
	for script in analysis/benchmarks/*.py; do $(BIN)/python $$script || exit 1; done
	$(BIN)/python analysis/overview.py

# what is written from results and from the code: analysis/README.md, docs/architecture.svg
overview: $(VENV)/ready
	$(BIN)/python analysis/overview.py
	$(BIN)/python analysis/architecture.py

$(VENV)/ready: EXTRAS := dev
$(FRAMEWORKS)/ready: EXTRAS := dev,frameworks
$(VENV)/ready $(FRAMEWORKS)/ready: pyproject.toml constraints.txt
	@python=""; for candidate in python3.13 python3.12 python3; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then echo "hierattn needs Python 3.12 or newer: none of python3.13, python3.12, python3 is" >&2; exit 1; fi; \
	echo "making $(@D) with $$($$python --version)"; $$python -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf $(VENV) $(FRAMEWORKS) demo build dist *.egg-info
