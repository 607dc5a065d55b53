# Requirements: git, make and python3 (3.11 to 3.14). Everything else is installed into .venv.
#   make run     start the appliance on a directory (ARGS="--port 8080" adds flags)
#   make test    lint, types, import rules, tests: must pass before a commit
#   make bench   performance, as ratios to a no-op server
#   make demo    produce this machine's package log, consume it, compare
#   make slow    tests of real processes, crashes, Spark, the built wheel
#   make neighbours  tests against servers and clients of other projects, which it installs
#   make alone   tests of what may not be lost whose faults have their moments, one at a time
#   make measured  tests that measure time or memory, one at a time
#   make proof   external faults, about 5 minutes; the report is .state/proof/report.html
#   make proof-full  the same, about 90 minutes; continues where it was (MINUTES=20 ends it early)
#   make proof-long  a piece of what takes days, MINUTES=60 of it; what was done is noted in git
#   make coverage  every branch of the most critical paths (docs/TESTING.md)
#   make mutants  mutants of these paths, which a test must kill; continues where it stopped
#   make matrix  the quick tests and those of the wheel with each Python that is here
#   make screenshots  update docs/images from an appliance with traffic
#   make wheel   dist/*.whl: what ansible/ installs
#   make docs    the documentation as a site, in .state/site/
#   make release everything that is published, into dist/ (release/README.md)
#   make publish publish what lies in dist/: IMAGE=registry/name
#   make audit   known vulnerabilities of the pinned packages; fails if it cannot check
#   make pins    update constraints.txt and the hashes in ansible/ from the ranges in pyproject.toml
#   make clean   remove the virtual environment and every cache (not seb-data/)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint style types quick slow-ready bench demo slow neighbours alone measured coverage mutants matrix proof proof-full proof-long screenshots wheel docs release publish audit pins clean

PYTHON ?= python3
VENV := .venv
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' seb_appliance/__init__.py)
PY := $(VENV)/bin/python
RUN_READY := $(VENV)/.ready-run
TEST_READY := $(VENV)/.ready-test

export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Tests start hundreds of processes: without bytecode on the disk each compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(PY) -m pytest -q --numprocesses logical --maxprocesses 4 --dist worksteal
# What failed beside other tests has one more chance, alone: the machine may have been busy.
AGAIN := { echo "=== failed beside others; once more, alone:"; \
    $(PY) -m pytest -q --last-failed --last-failed-no-failures none; }
# Tests of real processes wait for them most of the time.
SLOW_WORKERS = $(shell expr $$(nproc) + 1)
PIP_COMPILE := PIP_CONSTRAINT= .state/pins/bin/pip-compile --quiet --generate-hashes --strip-extras \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links --constraint constraints.txt
# Tests import a small part of what pip would compile.
PIP_INSTALL := $(PY) -m pip install --quiet --no-compile
# PyPI has no wheel of Spark: pip makes one, of half a gigabyte, and unpacks it at once.
INSTALL_SPARK := $(PIP_INSTALL) pyspark --config-settings=--build-option=--compression=stored
BESIDE_SPARK := .[bench,server,sql,test]
TEST_PARTS := .[bench,server,spark,sql,test]

help:
	@sed -n '2,23s/^#  //p' Makefile

run: $(RUN_READY)
	@exec $(VENV)/bin/seb serve $(ARGS)

# The types are checked while tests wait.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types quick

lint: style types

style: $(TEST_READY)
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: $(TEST_READY)
	$(PY) -m mypy
	$(PY) -m mypy --config-file tests/mypy.ini tests

quick: $(TEST_READY)
	$(PYTEST) -m "not slow" $(ARGS) || $(AGAIN)

bench: $(TEST_READY)
	@$(PY) benchmarks/ratios.py $(ARGS)

demo: $(RUN_READY)
	@$(PY) examples/package-log/demo.py $(ARGS)

slow: slow-ready
	$(PYTEST) --numprocesses $(SLOW_WORKERS) -m "slow and not measured and not alone and not neighbours" $(ARGS) || \
	    $(AGAIN)

neighbours: slow-ready
	@sh .ci/install-node
	@sh .ci/install-generators
	@sh tests/support/servers/install.sh
	@sh tests/support/servers/install-built.sh
	@sh tests/senders/install.sh
	@sh tests/kafka/install.sh
	@sh tests/spark/install.sh
	@! command -v mvn >/dev/null || { sh tests/lake/install-spark.sh && sh tests/lake/install-trino.sh; }
	$(PY) -m pytest -q -m neighbours -rs $(ARGS)

measured: slow-ready
	$(PY) -m pytest -q -m "measured and not alone and not neighbours" -p rerunfailures -rR $(ARGS)

alone: slow-ready
	$(PY) -m pytest -q -m "alone and not neighbours" $(ARGS)

proof: slow-ready
	@$(PY) -m tests.proof run $(ARGS)

proof-full: slow-ready
	@$(PY) -m tests.proof run --scale full $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

proof-long: slow-ready
	@$(PY) -m tests.proof run --scale long --minutes $(or $(MINUTES),60) $(ARGS)

coverage: $(TEST_READY)
	$(PY) -m tests.paths.covering $(ARGS)

mutants: $(TEST_READY)
	$(PY) -m tests.paths.mutants $(ARGS)

matrix:
	@sh .ci/matrix "$(or $(PYTHONS),3.11 3.12 3.13 3.14)" $(ARGS)

screenshots: slow-ready
	$(PY) -m tests.ui.screenshots

wheel:
	@sh .ci/make-venv $(PYTHON) .state/wheel
	@PIP_CONSTRAINT= .state/wheel/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

docs:
	@sh .ci/make-venv $(PYTHON) .state/docs
	@PIP_CONSTRAINT= .state/docs/bin/python -m pip install --quiet mkdocs-material==9.8.2
	@VERSION=$(VERSION) NO_MKDOCS_2_WARNING=1 .state/docs/bin/mkdocs build --quiet --strict \
	    --config-file release/site/mkdocs.yml --site-dir $(CURDIR)/.state/site/$(VERSION)
	@echo .state/site/$(VERSION)/index.html

release: $(TEST_READY) docs
	@sh .ci/install-debian "there is no image" mmdebstrap
	@$(PY) -m release build

# The image first: it can be replaced, a version of a package cannot.
publish: $(TEST_READY)
	@test -n "$(IMAGE)" || { echo "Name the image: make publish IMAGE=registry.example.org/seb-appliance"; exit 1; }
	@$(PY) -m release check
	@sh .ci/install-debian "no image can be published" skopeo
	@sh .ci/make-venv $(PYTHON) .state/publish
	@PIP_CONSTRAINT= .state/publish/bin/python -m pip install --quiet twine==7.0.0
	skopeo copy --all oci-archive:$(wildcard dist/*.oci.tar) docker://$(IMAGE):$(VERSION)
	.state/publish/bin/twine upload --non-interactive dist/*.whl dist/*.tar.gz
	git tag --annotate --message "Release $(VERSION)" v$(VERSION) && git push origin v$(VERSION)

# Without --strict it says that all is well when it could look nothing up.
audit:
	@sh .ci/make-venv $(PYTHON) .state/audit
	@PIP_CONSTRAINT= .state/audit/bin/python -m pip install --quiet pip-audit==2.10.1
	.state/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

pins:
	@rm -rf .state/pins && $(PYTHON) -m venv .state/pins
	PIP_CONSTRAINT= .state/pins/bin/python -m pip install --quiet '$(TEST_PARTS)'
	.state/pins/bin/python -m pip freeze --exclude seb-appliance > constraints.txt
	PIP_CONSTRAINT= .state/pins/bin/python -m pip install --quiet pip-tools==7.5.2
	$(PIP_COMPILE) --extra server --output-file ansible/requirements-appliance.txt pyproject.toml
	echo ansible-core | $(PIP_COMPILE) --output-file ansible/requirements-ansible.txt -

clean:
	rm -rf $(VENV) .state .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -prune -exec rm -rf {} +

$(RUN_READY): pyproject.toml constraints.txt | $(PY)
	@echo "Installing what the appliance needs into $(VENV) …"
	@$(PIP_INSTALL) --editable '.[server,sql]'
	@touch $@

$(TEST_READY): pyproject.toml constraints.txt | $(PY)
	@echo "Installing $(TEST_PARTS) into $(VENV), as constraints.txt pins them …"
	@$(INSTALL_SPARK) & spark=$$!; \
	    $(PIP_INSTALL) --editable '$(BESIDE_SPARK)'; rest=$$?; wait $$spark && exit $$rest
	@touch $@ $(RUN_READY)

# Each says what it installs, or which tests are skipped where it may not.
slow-ready: $(TEST_READY)
	@sh .ci/install-java
	@sh .ci/install-faults
	@sh .ci/install-browser
	@sh tests/lake/install.sh
	$(if $(TEST_MACHINES),@sh .ci/install-debian "the tests of the Ansible role are skipped" systemd-container mmdebstrap openssh-client)

$(PY):
	@sh .ci/make-venv $(PYTHON) $(VENV)
