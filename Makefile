# Needs only make and Python >= 3.11. The first target that needs the environment makes it in .venv.
# Variables: PYTHON=<interpreter to use>   ARGS=<more arguments for run, test, bench, lock>

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: run test check image screens bench lock clean help

run: $(VENV)/runtime.stamp ## start the service                  make run ARGS="--port 9000"
	$(BIN)/python -m app serve $(ARGS)

test: $(VENV)/dev.stamp ## run the tests                      make test ARGS="tests/engine -k heap"
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/dev.stamp ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict app tests
	PYTHONPATH=app $(BIN)/lint-imports --no-logo
	$(BIN)/hadolint Dockerfile

image: $(VENV)/dev.stamp ## build the container image and run it (docker; or buildah, podman, runc, mmdebstrap and root)
	$(BIN)/python -m pytest tests/container $(ARGS)

screens: $(VENV)/dev.stamp ## take pictures of the dashboard into build/screens (needs chromium)
	$(BIN)/python -m tests.browser.screens $(ARGS)

bench: $(VENV)/dev.stamp ## measure                            make bench ARGS="--help"
	$(BIN)/python -m tests.bench $(ARGS)

lock: $(BIN)/python ## pin the dependencies with hashes   make lock ARGS="--upgrade"
	$(PIP) install --quiet --upgrade uv
	$(COMPILE) requirements.txt --extra server --extra postgres
	$(COMPILE) requirements-dev.txt --group dev --extra server --extra postgres --extra otel --constraint requirements.txt

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find app tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

# One file serves every platform and Python version, and does not name the package index.
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links --no-config $(ARGS) --output-file

$(VENV)/runtime.stamp: requirements.txt $(BIN)/python
	@echo "installing $< into $(VENV)"
	@$(PIP) install --quiet --require-hashes -r $<
	@touch $@

$(VENV)/dev.stamp: requirements-dev.txt $(BIN)/python
	@echo "installing $< into $(VENV)"
	@$(PIP) install --quiet --require-hashes -r $<
	@touch $@

# PYTHON, or the first of these that is new enough. Debian's python3 lacks ensurepip, hence the second check.
$(BIN)/python:
	@found=; for python in $${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do \
		if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "no Python 3.11 or later found$${PYTHON:+ at PYTHON=$$PYTHON}: install one, or give its path: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	version=$$("$$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$found ($$version) cannot make virtual environments: on Debian or Ubuntu, apt install python$$version-venv" >&2; \
		exit 1; \
	fi; \
	echo "making $(VENV) with $$found ($$version)"; \
	"$$found" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
