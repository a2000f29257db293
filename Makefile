# `make` shows what there is. Every target prepares what it needs: a first cluster builds the control plane from
# source, which takes about a quarter of an hour; from then on it is in the user's cache.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help .venv test e2e engine-flags e2e-vllm demo demo-pods bench cluster-up cluster-down generate clean toolchain

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv: $(STAMP) ## Install Python dependencies, exactly as locked, into .venv

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: put it on PATH as python3, or say `make PYTHON=/path/to/it`.' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# Asked in the folder of a module, where Go may switch to the version that the module names.
toolchain:
	@version=$$(cd e2e/cluster/tools/kubernetes && go env GOVERSION 2>/dev/null) || version=; \
		printf 'go1.26\n%s\n' "$$version" | sort -V -C || \
		{ echo "Go 1.26 or newer is needed (https://go.dev/dl), found: $${version:-none}." >&2; exit 1; }

test: .venv toolchain ## Check style, types and layers, then run every test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --durations=15

e2e: .venv toolchain ## Install the operator's image by helm on a real node, and tell its stories; needs Linux and root
	@$(BIN)/python -m e2e.cluster can-run-containers
	DISAGG_E2E=1 $(BIN)/pytest --durations=15 tests/real_node tests/local_cluster/test_real_node.py

engine-flags: .venv ## Check the lists of engine flags against the releases, which are downloaded (a gigabyte, then cached)
	DISAGG_ENGINE_FLAGS=1 $(BIN)/pytest tests/engine_flags

e2e-vllm: .venv ## Run a pair on real vLLM as rendered, and the stand-in's tests on it, on CPUs: 7 GB of disk, 45 minutes, root
	$(BIN)/python -m e2e.real_vllm
	DISAGG_E2E_VLLM=1 $(BIN)/pytest --durations=0 tests/real_vllm
	DISAGG_E2E_VLLM=1 $(BIN)/pytest --durations=0 tests/engine_sim/conformance/test_pairs.py tests/engine_sim/conformance/test_vllm_*.py

demo: .venv toolchain ## Watch a 70B model come up on simulated racks; NAME=demo
	$(BIN)/python -m e2e.demo --name $(or $(NAME),demo)

demo-pods: .venv toolchain ## The same with pods that run, on a node of this machine; Linux and root; NAME=pods
	$(BIN)/python -m e2e.demo pods --name $(or $(NAME),pods)

bench: .venv toolchain ## Measure cost and placement; RESOURCES=1000, TRIALS=200, writes build/benchmarks/*.json
	$(BIN)/python -m e2e.benchmark operator --resources $(or $(RESOURCES),1000)
	$(BIN)/python -m e2e.benchmark placement --trials $(or $(TRIALS),200)

cluster-up: .venv toolchain ## Start a local cluster with simulated GPU nodes; NAME=default, REAL_NODE=1 for a real one, too
	$(BIN)/python -m e2e.cluster up --name $(or $(NAME),default) $(if $(REAL_NODE),--real-node)

cluster-down: .venv ## Stop a local cluster and what runs against it; NAME=default
	$(BIN)/python -m e2e.cluster down --name $(or $(NAME),default)

generate: .venv ## Write the files that are made from code: the CRD, the table in the chart's README
	mkdir -p crds charts/disagg/files/crds
	$(BIN)/disagg crd > crds/disagg.dev_disaggregatedinferences.yaml
	cp crds/disagg.dev_disaggregatedinferences.yaml charts/disagg/files/crds/
	$(if $(wildcard .ci/chart_readme.py),$(BIN)/python .ci/chart_readme.py)

clean: ## Remove .venv and caches; the built control plane stays in the user's cache
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build/benchmarks
