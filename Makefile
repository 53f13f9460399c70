# The only door. `make` alone lists the targets.

SECONDS ?= 600
TESTS ?= tests
PROCESSES ?= 3
PYTHON3 ?= python3

PYTHON := .venv/bin/python
SETUP := $(PYTHON3) tools/setup.py

# One command each; add arguments of your own with ARGS="...".
# Numbers are for a new site; the one in ./run has those that it was made with.
START := $(PYTHON) -m appliance start --local ./run $(if $(NODES),--nodes $(NODES)) \
	$(if $(STANDBYS),--standbys $(STANDBYS)) $(if $(SHARDS),--shards $(SHARDS))
TEST := $(PYTHON) -m tests.run --processes $(PROCESSES) $(TESTS) -rs --no-loadscope-reorder
# What must never break: what is written before it is said, and each planted bug by its cheapest seed.
NEVER := tests/cores/vsr/test_wal.py tests/cores/vsr/test_speech.py tests/simulation/test_planted.py \
	"tests/simulation/test_seeds.py::test_two_hundred_small_worlds_of_the_youngest_faults_keep_every_promise[0]"
UNITS := $(PYTHON) -m pytest tests/tidy tests/base tests/formats $(NEVER) -q -rs -n $(PROCESSES) \
	--no-loadscope-reorder
# Of the whole tree, hence before a run of all tests and not before one of some. All at once; each
# prints what it has to say when it has ended, whatever became of the others.
LINT := $(MAKE) --no-print-directory --jobs=5 --keep-going --output-sync=target types tidy lint layout
BENCH := $(PYTHON) tests/bench/run.py
SOAK := $(PYTHON) -m pytest $(TESTS) -m soak --soak-seconds=$(SECONDS) -rs -s

.PHONY: targets run report test check format bench bench-peers soak autobahn executable packages image hdfs locks clean \
	types tidy lint layout frozen
.DEFAULT_GOAL := targets

targets:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

run: ## start a site on this machine; a new one with NODES=3 STANDBYS=0 SHARDS=1; Ctrl-C ends it, data stays in ./run
	@$(SETUP) node
	@exec $(START) $(ARGS)

report: ## from the site that `make run` runs to a page: ship what there is, verify it, draw ./report/report.html
	@$(SETUP) report
	@exec $(PYTHON) -m appliance report --spark .venv site $(ARGS)

test: ## run every test, as CI does; TESTS=tests/base for some
	@$(SETUP) tests $(if $(filter tests,$(TESTS)),-- $(LINT) frozen)
	@exec $(TEST) $(ARGS)

check: ## tidy, format, lint, types, base, formats and what must never break, in three minutes
	@$(SETUP) check -- $(LINT)
	@exec $(UNITS)

types:
	@$(PYTHON) -m mypy

tidy:
	@$(PYTHON) tools/tidy.py

lint:
	@$(PYTHON) -m ruff check .

layout:
	@$(PYTHON) -m ruff format --check .

# What most tests of packaging begin with. If it fails they tell so, for they try it again.
frozen:
	@$(PYTHON) -m tests.packaging.frozen || true

format: ## lay out the Python files, and mend what the linter can mend
	@$(SETUP) check
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: ## measure, print, and append to the history of measurements
	@$(SETUP) tests
	@exec $(BENCH) $(ARGS)

bench-peers: ## measure beside etcd, Redis, NATS from Debian, and another checkout with ARGS="--tree DIR"; needs root
	@$(SETUP) tests
	@exec $(PYTHON) -m tests.bench.peers.run $(ARGS)

soak: ## fresh seeds and many kills for SECONDS=600
	@$(SETUP) soak
	@exec $(SOAK) $(ARGS)

autobahn: ## the original Autobahn suite against the client port, by a PYTHON2=... that has it
	@$(SETUP) tests
	@exec $(PYTHON) -m tests.drivers.network.autobahn "$(PYTHON2)" $(ARGS)

executable: ## freeze the program into dist/tigerchat/ and dist/tigerchat-onefile
	@$(SETUP) executable
	@exec $(PYTHON) packaging/executable/build.py $(ARGS)

packages: executable ## a Debian package and a plain tar file of it, in dist/
	@exec $(PYTHON) packaging/install/build.py

image: packages ## a disk image that a machine starts from by UEFI, in dist/; needs root
	@$(SETUP) image
	@exec $(PYTHON) packaging/image/build.py $(ARGS)

hdfs: ## start a real HDFS on this machine, to ship to and look at; Ctrl-C ends it
	@$(SETUP) tests
	@exec $(PYTHON) tools/hdfs.py run

locks: ## resolve packaging/locks/*.in anew, with hashes
	@$(SETUP) locks

clean: ## remove .venv and caches; the data in ./run stays
	rm -rf .base .hdfs .sds .venv .venv-locks .venv.lock .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
