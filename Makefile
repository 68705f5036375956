# Environments: .venv holds what the product needs, .venv-test what its checks need besides (torch among it).
# Each is brought up to date when the list of packages changes; the checks then start from an empty one, so that
# nothing left over hides what is missing.

PYTHON ?= python3
RUN = .venv
TEST = .venv-test
BIN = $(TEST)/bin
# These start processes and time some, so they have the cores to themselves; all others are shared out over the cores.
ONE_BY_ONE = tests/integration tests/acceptance
SHARED_OUT = --numprocesses=auto --maxprocesses=8 --dist=worksteal
PIP_INSTALL = -m pip install --quiet --constraint constraints.txt

.PHONY: install run test coverage lint bench format lock browser slurm clean
.DELETE_ON_ERROR:

install: $(RUN)/.installed

# The service on an SQLite file, with an example plan; Ctrl-C stops it.
run: install
	PATH="$(CURDIR)/$(RUN)/bin:$$PATH" sh scripts/run.sh

# Everything that is checked, on a laptop as in CI.
test: lint browser slurm
	$(BIN)/pytest $(SHARED_OUT) $(ONE_BY_ONE:%=--ignore=%)
	$(BIN)/pytest $(ONE_BY_ONE)

# The same with the lines and branches that no test reaches, which takes nearly twice as long.
coverage: $(TEST)/.installed browser slurm
	$(BIN)/pytest --cov --cov-report= $(SHARED_OUT) $(ONE_BY_ONE:%=--ignore=%)
	$(BIN)/pytest --cov --cov-append --cov-report=term $(ONE_BY_ONE)

lint: $(TEST)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	-@$(BIN)/vulture

bench: $(TEST)/.installed
	$(BIN)/python -m benchmarks

format: $(TEST)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Write the newest versions that fit together into constraints.txt; `make test` then tries them.
lock:
	sh scripts/lock.sh "$(PYTHON)"

# Debian's Chromium, which the tests of the pages drive.
browser:
	@command -v chromium >/dev/null || sh scripts/install-browser.sh

# Debian's Slurm, which takes and runs the job script of the profiler.
slurm:
	@command -v slurmctld >/dev/null || sh scripts/install-slurm.sh

clean:
	rm -rf $(RUN) $(TEST) build dist *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(RUN)/.installed: EXTRAS =
$(TEST)/.installed: EXTRAS = [dev,profiler]
$(TEST)/.installed: FRESH = --clear
%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(FRESH) $*
	$*/bin/python $(PIP_INSTALL) pip setuptools
	PYTHONWARNINGS=ignore $*/bin/python $(PIP_INSTALL) --no-build-isolation --editable '.$(EXTRAS)'
	touch $@
