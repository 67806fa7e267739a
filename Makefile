# Every target does its own set-up; Python 3.11 to 3.13 and make are all that must be there.
PYTHON ?= python3
VENV ?= .venv
VENV_QUICK ?= .venv-quick
BIN := $(VENV)/bin
UV := $(BIN)/python -m uv
# One more than processors: half of the time tests wait for clients, brokers and time-outs.
WORKERS ?= 3
# Hundreds of processes are started: without compiled files each would compile all that it imports, for a second or more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo drill test quick format lint unit coverage rules mutants judge judge-clients fuzz frames damage model simulate chaos conformance-long cluster compose bench clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

define new_environment
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"muster: Python 3.11 to 3.13 is needed, $(PYTHON) is {v[0]}.{v[1]}; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check uv
endef

$(VENV)/.base: requirements.lock pyproject.toml
	$(new_environment)
	$(UV) pip install --quiet --constraint requirements.lock --editable . --group demo
	@touch $@

$(VENV_QUICK)/.made: requirements.lock pyproject.toml
	$(new_environment)
	$(@D)/bin/python -m uv pip install --quiet --constraint requirements.lock --editable . --group quick
	@touch $@

$(VENV)/.brokers: $(VENV)/.base
	$(UV) pip install --quiet --constraint requirements.lock --group brokers
	@touch $@

$(VENV)/.all: $(VENV)/.base
	$(UV) pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

demo: $(VENV)/.base $(if $(KAFKA),$(VENV)/.brokers) ## Live consumers, restarts, a crash, and why each rebalance happened (KAFKA=1: on a real broker)
	@PYTHONPATH=. $(BIN)/python -m demo $(if $(KAFKA),--kafka)

drill: $(VENV)/.base $(VENV)/.brokers ## A failover drill on a real broker (KIND=restart, ARGS='--groups 50'), and drill.html
	@PYTHONPATH=. $(BIN)/python -m tests.drills $(or $(KIND),takeover) --out drill.html $(ARGS)

test: lint unit ## All checks and tests, with real brokers and real clients

quick: $(VENV_QUICK)/.made ## Rules, events, causes and the bugs of other coordinators: about a minute, for after each edit
	$(VENV_QUICK)/bin/ruff check --quiet .
	HYPOTHESIS_PROFILE=quick $(VENV_QUICK)/bin/pytest --quick --quiet --numprocesses 2

format: $(VENV_QUICK)/.made ## Format the code, and mend what ruff can mend
	$(VENV_QUICK)/bin/ruff format .
	$(VENV_QUICK)/bin/ruff check --fix .

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.all
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/.all ## All tests, and the lines and branches that they run: 95 % of rules and events at least
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=
	$(BIN)/coverage report --include='events/*,coordinator/group/*' --fail-under=95
	$(BIN)/coverage report

rules: $(VENV)/.all ## Every rule of Kafka's coordinator, and the tests that show it
	@$(BIN)/python -m tests.conformance.rules

mutants: $(VENV)/.all ## 490 small mistakes in events, the coordinator, the sidecar and replay: do the tests notice?
	@$(BIN)/python -m tests.mutants

judge: $(VENV)/.all ## 1,000 incidents done to simulated groups: does replay tell what was done?
	@$(BIN)/python -m tests.judge --teller tests.replay.incidents.telling:tell --seeds 1000 --jobs 2

judge-clients: $(VENV)/.all ## 60 incidents done to processes of real clients of four families: is what is told what was done? (MODE=sidecar: with a broker behind)
	@$(BIN)/python -m tests.judge.real --mode $(or $(MODE),standalone) --cases 60

fuzz: $(VENV)/.all ## 500 random schedules on a real Kafka and on Muster: every answer is the same
	$(BIN)/python -m tests.conformance.fuzz --seeds 500

frames: $(VENV)/.all ## A million frames, valid and hostile: each is answered or refused, and leaves nothing
	$(BIN)/python -m tests.frames --frames 1000000

damage: $(VENV)/.all ## 2,000 damaged logs: replay says what is wrong, or answers as if nothing were
	$(BIN)/python -m tests.damage --seeds 2000

model: $(VENV)/.all ## Explore all interleavings of small worlds, two minutes each
	$(BIN)/python -m tests.model --seconds 120 --jobs 2

simulate: $(VENV)/.all ## Several processes, their clients and their faults in simulated time (SEEDS=1000 schedules)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000)

chaos: $(VENV)/.all ## Faults done to real processes and brokers under load, and every invariant (SEED=1 FAULTS=100 MODE=sidecar)
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --faults $(or $(FAULTS),100) --mode $(or $(MODE),sidecar)

conformance-long: $(VENV)/.all ## The conformance scripts that need minutes, and all of them through a sidecar
	$(BIN)/python -m pytest tests/conformance/long_conformance.py tests/conformance/long_through_sidecar.py

cluster: $(VENV)/.all ## The fleet on a Spark cluster of a master and two workers, with an environment that was packed
	$(BIN)/python -m pytest tests/replay/fleet/long_cluster.py

compose: $(VENV)/.all ## compose.yaml on a Docker engine: all of it comes up, and why the group rebalances (images are made where none can be pulled)
	$(BIN)/python -m pytest -s tests/deploy/long_compose.py

bench: $(VENV)/.all ## Measure beside a real Kafka; writes benchmarks/results/
	PYTHONPATH=. $(BIN)/python -m benchmarks

clean: ## Remove what was made
	rm -rf $(VENV) $(VENV_QUICK) build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
