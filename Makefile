# Two commands: `make demo` shows the main job on real input, `make test` proves the rest. Each sets up
# everything it needs under .venv/ (first run) and reuses it (second run). Nothing global is touched.

PYTHON ?= python3
# Tests of servers wait as much as they compute: on two cores three workers take less time than two.
WORKERS ?= 3
DEMO   := .venv/demo
TEST   := .venv/test
BENCH  := .venv/bench
LOWEST := .venv/lowest
RELEASE := .venv/release
UV     := $(TEST)/bin/uv pip install -q --python $(TEST) --cache-dir .venv/uv
# Label Studio (its own virtual environment and a migrated data folder) is kept here for tests.
export HITL_HOME ?= $(CURDIR)/.venv/home
export HITL_DATA ?= $(CURDIR)/../shared/data
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Many tests start processes: these read what the first has compiled, also where the environment forbids that.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo demo-serve demo-label-studio prepare test journeys lowest trust rehearse release docs results quick lint types unit bench format clean

demo: $(DEMO)/.ready  ## replay real annotators through the loop; writes hitl-demo-report.html
	$(DEMO)/bin/hitl demo

demo-serve: $(DEMO)/.ready-service  ## the same people as pages in a browser, while they label; says where, and how to log in
	$(DEMO)/bin/hitl demo --serve

demo-label-studio: $(TEST)/.ready  ## the same through a real Label Studio started here
	$(TEST)/bin/hitl demo --label-studio

test: prepare lint types unit  ## what CI runs

# With the oldest versions (four minutes): CI has only these two targets, and `test` is nearer to its time limit.
journeys: prepare  ## the longer ways on real servers: a day, faults, clocks, kills, and `make lowest`; `make trust` has the longest
	$(TEST)/bin/python -m tests.compile_kernels dbcc >/dev/null 2>&1 &
	$(TEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "journey and not trust"
	$(MAKE) lowest

lowest: $(LOWEST)/.ready  ## nouns, tables, commands and the service with the oldest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) -o filterwarnings=default tests/core tests/cli/test_cli.py \
		tests/cli/test_help.py tests/service/web/test_access.py

trust: $(TEST)/.ready  ## the longest proofs (hours), of which `make test` runs shorter forms; figures: docs/trust.md
	$(TEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile --hypothesis-profile=random -m "not server and not trust and not journey"
	$(TEST)/bin/python -m tests.bench.bench_trust --save
	$(TEST)/bin/python -m tests.bench.trust.clocks --runs 200 --minutes 120 --save
	$(TEST)/bin/python -m tests.bench.trust.faults --save
	$(TEST)/bin/python -m tests.bench.trust.stopped --save
	$(TEST)/bin/python -m tests.bench.trust.kills --kills 300 --minutes 120 --save
	$(TEST)/bin/python -m tests.bench.trust.fuzz --minutes 60 --save
	$(TEST)/bin/python -m tests.bench.trust.cost 50000 200000 1000000 --save
	$(TEST)/bin/python -m tests.bench.trust.soak --runs 400 --items 3000 --save

rehearse: $(TEST)/.ready  ## what deploy/ starts, as processes: a wheel in a fresh environment, PostgreSQL, Label Studio
	$(TEST)/bin/python -m tests.deploy.rehearsal --fresh

release: $(RELEASE)/.ready  ## the source distribution, the wheel and the release notes, in dist/; see CONTRIBUTING.md
	$(RELEASE)/bin/python -m tests.deploy.release

docs: $(TEST)/.ready  ## the site, with search that works offline, in docs/_build/html; first the pages that are made from the code
	$(TEST)/bin/python docs/generate.py
	$(TEST)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

quick: lint  ## the inner loop, under two minutes: nouns, tables, policy, layout
	$(TEST)/bin/python -m pytest -q -n $(WORKERS) tests/core tests/test_layout.py tests/active/test_policy.py \
		tests/cli/test_help.py

# In the background, while lint and types are checked: the server is installed (tests that come early wait), and kernels
# are compiled that workers would otherwise compile side by side.
prepare: $(TEST)/.ready
	$(TEST)/bin/python -m tests.compile_kernels >/dev/null 2>&1 &
	$(TEST)/bin/python -c "from hitl.connectors.label_studio import server; server.template(server.install())" >/dev/null 2>&1 &

lint: $(TEST)/.ready
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/python -m bandit -c pyproject.toml -q -r hitl connectors models active

types: $(TEST)/.ready  # mypy cannot see the folder mapping of pyproject.toml: it checks a copy laid out by it
	rm -rf .venv/typed && mkdir -p .venv/typed && cp -r hitl .venv/typed/ && cp -r connectors models active .venv/typed/hitl/
	cd .venv/typed && ../test/bin/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p hitl

unit: $(TEST)/.ready  # side by side, a file on one worker; `.venv/test/bin/python -m pytest tests/test_x.py` runs one alone
	$(TEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

bench: $(TEST)/.ready bench-speed  ## the figures of docs/benchmarks/
	$(TEST)/bin/python -m tests.bench

bench-speed: $(BENCH)/.ready  ## beside crowd-kit, whose dependencies stay out of the tests' environment
	$(BENCH)/bin/python -m tests.bench.bench_speed $(or $(ARGS),--save)

bench-honesty: $(TEST)/.ready  ## the protocol that confidence is held to
	OMP_NUM_THREADS=1 $(TEST)/bin/python -m tests.bench.bench_honesty $(or $(ARGS),--save)

bench-stops: $(TEST)/.ready  ## what a target accuracy promises, and the labels it takes
	OMP_NUM_THREADS=1 $(TEST)/bin/python -m tests.bench.honesty.stops $(or $(ARGS),--save)

results: $(BENCH)/.ready  ## docs/results/field.md: open packages on public sets, side by side; goes on where it was interrupted
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BENCH)/bin/python -m tests.bench.field $(or $(ARGS),--save)

bench-crowdlab: $(BENCH)/.ready  ## the default with a model beside cleanlab's CROWDLAB
	OMP_NUM_THREADS=1 $(BENCH)/bin/python -m tests.bench.human_and_model --save

bench-scale: $(TEST)/.ready  ## labels beyond memory; make bench-scale ARGS="--rows 100000000 --save" takes 15 GB of disk
	$(TEST)/bin/python -m tests.bench.scale.passes
	$(TEST)/bin/python -m tests.bench.scale.classes
	$(TEST)/bin/python -m tests.bench.scale.out_of_core $(ARGS)

bench-%: $(TEST)/.ready  ## one of them: make bench-replay_cifar10h ARGS="--file resnet-110.csv"
	$(TEST)/bin/python -m tests.bench.bench_$* $(ARGS)

format: $(TEST)/.ready
	$(TEST)/bin/ruff check --fix . && $(TEST)/bin/ruff format .

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache *.egg-info

$(DEMO)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install -q -e .
	touch $@

$(DEMO)/.ready-service: $(DEMO)/.ready
	$(DEMO)/bin/pip install -q -e '.[service]'
	touch $@

$(BENCH)/.ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip install -q -e '.[bench]'
	touch $@

$(RELEASE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install -q build 'setuptools>=77' pytest
	touch $@

# Without torch (extras gp and vision), whose old versions are 5 GB, and without what only checks deploy/.
$(LOWEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -q uv
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST) --cache-dir .venv/uv --resolution lowest-direct \
		-e '.[label-studio,postgres,moments,sklearn,service,excel,scale,cluster,test]'
	touch $@

# What is imported is compiled then: compiling all of it here takes as long as half of the installation.
# torch and torchvision come in one install from one index: a torch of another build breaks torchvision. pip takes them,
# which knows the indexes of the machine. uv installs the other packages in a fraction of pip's time; without it, pip does.
$(TEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(TEST)
	$(TEST)/bin/pip install -q --no-compile torch torchvision
	-$(TEST)/bin/pip install -q uv
	$(UV) -e '.[label-studio,postgres,gp,vision,service,docs,test]' || \
		$(TEST)/bin/pip install -q --no-compile -e '.[label-studio,postgres,gp,vision,service,docs,test]'
	-$(UV) -e '.[test-deploy]' || $(TEST)/bin/pip install -q --no-compile -e '.[test-deploy]'
	-which promtool || (mkdir -p .venv/tools && cd .venv/tools && apt-get download -q prometheus && dpkg -x prometheus_*.deb . \
		&& mv usr/bin/promtool . && rm -rf prometheus_*.deb usr etc lib var)
	touch $@
