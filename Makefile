# Everything sets itself up: `make demo` and `make test` work in a fresh clone. Paths are relative, so that the clone
# may lie anywhere; after moving it, `make clean` first.

PYTHON ?= python3
ARGS ?=
PROCESSES ?= 2

BIN := .venv/bin
READY := .venv/lowmark-is-installed
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

.PHONY: demo test test-fast tools lint format lock chart clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo       show lowmark at work; ARGS='…' are passed on"
	@echo "make test       everything that CI runs; PROCESSES=… at a time (2)"
	@echo "make test-fast  the tests that need neither a broker nor Spark"
	@echo "make tools      as root of a Debian: what some tests compare with or start (tshark, Docker, systemd, Prometheus, ip)"
	@echo "make lint       formatting, style, types, layers"
	@echo "make format     format the code"
	@echo "make lock       make the lockfiles of packages and jars anew"
	@echo "make chart      make the Helm chart's copies, golden renders and table of values anew"
	@echo "make clean      remove what make has made"

demo: $(READY)
	@$(BIN)/lowmark demo $(ARGS)

# The tests of a file stay together, which share what they have set up; files in their order, not the largest first: the
# longest are in the middle, and nothing long is left for the end.
test: lint
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

test-fast: $(READY)
	@$(BIN)/python -m pytest -m "not slow"

# Without them the tests that need them are skipped, and say so. Debian would start Prometheus and Alertmanager as services
# that listen on all addresses: policy-rc.d keeps the installation from it, and those that are new stay disabled.
NO_SERVICE := /usr/sbin/policy-rc.d
tools:
	@{ command -v tshark && command -v dockerd && command -v docker-compose && command -v systemd-analyze && \
		command -v ip && command -v prometheus-alertmanager; } >/dev/null || { apt-get update -qq && \
		if [ ! -e $(NO_SERVICE) ]; then \
			trap 'rm -f $(NO_SERVICE)' EXIT && trap 'exit 1' HUP INT TERM && \
			printf '#!/bin/sh\ncase "$$1" in prometheus*) exit 101;; esac\n' >$(NO_SERVICE) && chmod 755 $(NO_SERVICE); \
		fi && \
		new= && for name in prometheus prometheus-alertmanager; do command -v $$name || new="$$new $$name"; done && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		tshark docker.io docker-compose systemd iproute2 prometheus prometheus-alertmanager && \
		{ [ -z "$$new" ] || systemctl --quiet disable $$new || true; }; } >/dev/null

lint: $(READY)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports

format: $(READY)
	@$(BIN)/python -m ruff format .

# The lockfiles hold versions and hashes but no address: whatever registry pip is set up for serves them.
lock: $(READY)
	$(COMPILE) --upgrade --group build -o requirements-build.lock
	$(COMPILE) --upgrade --group dev pyproject.toml -o requirements.lock
	$(COMPILE) -c requirements.lock pyproject.toml -o deploy/image/job.lock
	$(COMPILE) -c requirements.lock --group capture -o deploy/image/capture.lock
	$(BIN)/python -m lowmark.app.kafka.jars --lock

chart: $(READY)
	@$(BIN)/python -m tests.helm.chart

# The build tools come first and by hash, because some packages are built here and would else fetch tools unchecked.
$(READY): requirements-build.lock requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "lowmark needs Python 3.11 or newer, which '$(PYTHON)' is not; name one: make PYTHON=python3.12 …" >&2; exit 1; }
	@"$(PYTHON)" -m venv .venv || { \
		echo "'$(PYTHON)' cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the pinned packages into .venv (a few minutes the first time)" >&2
	@$(INSTALL) --require-hashes -r requirements-build.lock
	@$(INSTALL) --require-hashes --no-deps --no-build-isolation --use-pep517 -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
