# Tidelog's commands. `make help` lists them; none of them asks a question.
.DEFAULT_GOAL := help
.PHONY: help setup java toolchains demo test test-fast check compat bench verify sim chaos wheel lock clean

# The first interpreter that is new enough; override with `make PYTHON=...`.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# The environment is made anew when the lock file, the build or the interpreter changes.
KEY := $(shell cat requirements/dev.txt pyproject.toml setup.py 2>/dev/null | sha256sum | cut -c1-16)
STAMP := $(VENV)/.made-$(KEY)
PYTEST := $(BIN)/python -m pytest

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1 \t/' | expand -t 20

setup: $(STAMP)  ## make the virtual environment (done by every other command that needs it)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and none was found on PATH."; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

toolchains:  ## install what Debian has of the toolchains that some tests need
	@sh scripts/toolchains.sh

java: $(STAMP)
	@$(BIN)/python -m tidelog.spark.launch.java > /dev/null || { \
		echo "fetching a Java runtime for Spark"; \
		$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/java.txt; }

demo: java  ## three brokers, a click stream, a Spark pipeline, and kills; ONCE=1 ends by itself
	@$(BIN)/python -m examples.demo $(if $(ONCE),--once)

test: java check  ## everything a change must pass
	$(BIN)/python scripts/run_tests.py -q

test-fast: $(STAMP)  ## what runs in under a minute, without a JVM
	$(PYTEST) -q tests/unit tests/tidy -m "not java and not go and not node and not kcat"

check: $(STAMP)  ## ruff, mypy, bandit, import contracts, tidy
	$(BIN)/ruff format -q --check .
	$(BIN)/ruff check -q .
	$(BIN)/bandit -q -c pyproject.toml -r src 2> /dev/null
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache
	$(PYTEST) -q tests/tidy

compat: $(STAMP) toolchains  ## every client against every case, on one and on three brokers
	TIDELOG_LONG=1 $(PYTEST) -q tests/compat --write-compat-table

bench: java  ## side by side with Apache Kafka; writes docs/benchmarks.md
	$(BIN)/python -m bench

sim: $(STAMP)  ## brokers under simulated faults: SEEDS=500 [FROM=1] [JOBS=2] [BROKERS=3] [MOVES=1] [TRANSACTIONS=1] [GROUPS=1]
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),500) --from $(or $(FROM),1) $(if $(TRANSACTIONS),--transactions) \
		--jobs $(or $(JOBS),2) --brokers $(or $(BROKERS),3) $(if $(MOVES),--moves) $(if $(GROUPS),--groups)

chaos: java  ## real brokers and ZooKeepers under faults: FAULTS=20 [SEED=1] [KINDS=kill,pause] [LONG=1]
	$(BIN)/python -m tests.chaos --faults $(or $(FAULTS),20) $(if $(SEED),--seed $(SEED)) \
		$(if $(KINDS),--kinds "$(KINDS)") $(if $(LONG),--long --pipeline) $(if $(FSYNC),--fsync)

verify: java  ## the long tiers, with their counts
	TIDELOG_LONG=1 $(PYTEST) -q -s

wheel: $(STAMP)  ## build wheel and sdist, and try both in clean environments
	$(BIN)/python scripts/try_wheel.py

lock: $(STAMP)  ## resolve requirements/dev.txt anew (needs uv on PATH)
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
		-p 3.11 pyproject.toml requirements/dev.in --extra spark --extra tables --extra security \
		-o requirements/dev.txt
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
		-p 3.11 requirements/java.in -o requirements/java.txt
	uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
		-p 3.11 requirements/spark-floor.in -o requirements/spark-floor.txt

clean:  ## remove what the commands made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis tidelog-data
	find . -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.so' -delete
