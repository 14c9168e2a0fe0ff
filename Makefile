# make site   build the site into site/       make test   prove it
# make serve  live preview                    make bench  measure the build
# make lighthouse  let Lighthouse judge pages on a phone (needs Node.js and Chromium)
# make peers  compare with other libraries, in an environment of their own
# make zensical  the same pages by another renderer   make clean  forget everything that was made
# make mutants  break attnkit in every single place and see who notices (MODULES="rotary alibi" chooses)
#
# PYTHON=python3.12 chooses another interpreter; pip's own variables (PIP_EXTRA_INDEX_URL, …) apply.

SUPPORTED = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell $(p) -c '$(SUPPORTED)' 2>/dev/null && echo $(p))))
RUN := .venv/bin/python

# Material announces its successor on every run. The date of a page is that of the commit, so that two
# builds of the same commit give the same bytes.
export NO_MKDOCS_2_WARNING := 1
export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

.PHONY: site test peers peers-tables lighthouse mutants serve bench zensical clean
.DELETE_ON_ERROR:

site: .venv/site.made
	@rm -rf site; mkdir -p .cache; new=$$(mktemp -d .cache/site-XXXXXX); trap 'rm -rf "$$new"' EXIT; \
	$(RUN) -m mkdocs build --strict --site-dir "$$new" && rm -rf site && mv "$$new" site && chmod 755 site
	@echo "The site is in site/. To read it: $(RUN) -m http.server --directory site, then http://localhost:8000"

test: .venv/test.made
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest

peers: .cache/peers-env/made
	HF_HUB_OFFLINE=1 KERAS_BACKEND=torch .cache/peers-env/bin/python -m pytest \
	  --override-ini addopts=--strict-markers tests/peers/heavy

# Both tables of docs/peers.md, anew; an interrupted measurement leaves the old one.
peers-tables: .cache/peers-env/made
	HF_HUB_OFFLINE=1 KERAS_BACKEND=torch .cache/peers-env/bin/python -m benchmarks.disagreements > .cache/table
	mv .cache/table benchmarks/disagreements.md
	.cache/peers-env/bin/python -m benchmarks.agreement > .cache/table
	mv .cache/table benchmarks/agreement.md

serve: .venv/site.made
	$(RUN) -m mkdocs serve

bench: .venv/site.made .cache/peers-env/made
	$(RUN) -m benchmarks.build
	$(RUN) -m benchmarks.attention
	HF_HUB_OFFLINE=1 .cache/peers-env/bin/python -m benchmarks.rotary

lighthouse: site .cache/lighthouse/made
	$(RUN) -m benchmarks.lighthouse

mutants: .venv/test.made
	$(RUN) -m benchmarks.mutants $(MODULES)

zensical: .venv/site.made .cache/zensical-env/made
	$(RUN) -m hooks
	$(RUN) -m hooks.zensical "$(CURDIR)/.cache/zensical-env/bin/zensical"

clean:
	rm -rf site docs/gallery docs/labs/*.ipynb .cache .venv

# Made anew when the pins change; the mark comes last, so an interrupted installation is repeated.
.venv/site.made: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "attnkit needs Python 3.11, 3.12 or 3.13; name one with make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable ".[site]"
	@touch $@

.venv/test.made: .venv/site.made
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable ".[site,test]"
	@touch $@

# Zensical and MkDocs Material want different versions of what they share.
.cache/zensical-env/made: Makefile
	$(PYTHON) -m venv --clear .cache/zensical-env
	.cache/zensical-env/bin/python -m pip install --quiet --disable-pip-version-check zensical==0.0.73
	@touch $@

.cache/lighthouse/made: Makefile
	@rm -rf .cache/lighthouse; mkdir -p .cache/lighthouse
	cd .cache/lighthouse && npm install --no-save --no-audit --no-fund --silent lighthouse@12.2.3
	@touch $@

# torch stays at its pin: none of the peers may choose another.
.cache/peers-env/made: requirements.txt tests/peers/requirements.txt
	$(PYTHON) -m venv --clear .cache/peers-env
	.cache/peers-env/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint requirements.txt --requirement tests/peers/requirements.txt
	@touch $@
