# The verbs of this project. `make` alone lists them; each makes the environment it needs, once.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install --quiet --quiet --disable-pip-version-check --constraint .constraints.txt --editable

# One file for each set of packages: newer than what it was made from, or made again.
MADE := $(VENV)/.made
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
DECLARED := pyproject.toml .constraints.txt

# Test processes at a time. Tests that kill and freeze processes all go to one of them, whatever the number.
JOBS ?= 2
# Further words for pytest, as in `make test ARGS="-k delayed -x"`, or for the chaos run, as in `make chaos ARGS="--seed 7"`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo serve rush on-sale doctor test crash chaos soak bench bench-quick lint docs audit

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(DEMO) ## show the four cases: real workers, a real Redis, a real kill
	@$(RUN) -m deploy.demo

serve: $(DEMO) ## leave the demo running and say where to look
	@$(RUN) -m deploy.demo --serve

rush: $(DEMO) ## hand in 200 exams at once, the old way and the new, and compare what each candidate waited
	@$(RUN) -m deploy.demo.rush $(ARGS)

on-sale: $(DEMO) ## sell a hall to a crowd while a worker is killed, and say whether all came right
	@$(RUN) -m deploy.demo.on_sale $(ARGS)

doctor: $(DEMO) ## say how the set-up at REDIS_URL can lose or double work
	@$(RUN) manage.py queue_doctor $(ARGS)

test: $(DEV) ## run every test, on private Redis servers
	@$(RUN) -m pytest --numprocesses $(JOBS) --dist loadgroup $(ARGS)

crash: $(DEV) ## run the tests that kill, freeze and cut off, one after the other
	@$(RUN) -m pytest -m crash $(ARGS)

chaos: $(DEV) ## kill, freeze and cut off everything at random for a minute, then balance the books
	@$(RUN) -m tests.chaos $(ARGS)

soak: $(DEV) ## the same until 100,000 jobs were sent and 1,000 processes killed: about an hour
	@$(RUN) -m tests.chaos --jobs 100000 --kills 1000 --rate 100 --every 0.8 $(ARGS)

bench: $(DEV) ## measure against stock Celery and other task queues, all that grows, and each guarantee; 20 minutes
	@$(RUN) -m benchmarks

bench-quick: $(DEV) ## measure against stock Celery alone, in under two minutes
	@$(RUN) -m benchmarks --quick

lint: $(DEV) ## style, types, import contracts, sizes
	@$(RUN) -m ruff check .
	@$(RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(RUN) -m tests.support.sizes

docs: $(DOCS) ## build the documentation as a site, in site/
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --config-file .mkdocs.yml
	@echo "Built: site/index.html"

audit: $(DEV) ## look for holes in the code, and for known ones in what it needs (asks the package index)
	@$(RUN) -m bandit --quiet --recursive queue_kit -ll
	@$(RUN) -m pip_audit --strict --requirement .constraints.txt --no-deps --disable-pip

# A venv that was interrupted half-way has no stamp, and is made anew.
$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Needs Python 3.11 or later; '$(PYTHON)' is none. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv or ensurepip module. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making the environment in $(VENV) (once; a minute or two)."
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(DEMO): $(MADE) $(DECLARED)
	@echo "Installing what the demo needs."
	@$(PIP_INSTALL) ".[demo]"
	@touch $@

$(DEV): $(MADE) $(DECLARED)
	@echo "Installing what tests, lint and benchmarks need."
	@$(PIP_INSTALL) ".[demo,dev]"
	@touch $@ $(DEMO)

$(DOCS): $(MADE) $(DECLARED)
	@echo "Installing what the documentation needs."
	@$(PIP_INSTALL) ".[docs]"
	@touch $@
