# Penstock. `make` alone shows what there is.

SHELL       := /bin/sh
GO          ?= go
BIN         := bin
ARGS        ?=
DIR         ?= .penstock
FUZZTIME    ?= 1m
VENV        ?= $(HOME)/.cache/penstock-compat
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help
.PHONY: help build deps test-deps run stop test test-race test-crash chaos groups fuzz bench compat compat-kafka lint fmt generate clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/penstock, bin/penstock-control and bin/penstock-broker
	$(GO) build -o $(BIN)/ ./controlplane/cmd/... ./dataplane/cmd/...

# RUNLEVEL=1 keeps the packages' own services from being started: only ours run.
define install
	@missing=""; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	{ [ -e /usr/share/java/zookeeper.jar ] && command -v java >/dev/null; } || missing="$$missing zookeeper"; \
	for tool in $(1); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	case "$$missing" in *gcc*) missing="$$missing libc6-dev";; esac; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" != 0 ]; then echo "missing:$$missing; as root: apt-get install$$missing" >&2; exit 1; fi; \
	export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	echo "installing$$missing" >&2; \
	{ apt-get install -y -qq --no-install-recommends $$missing || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; }; } >/dev/null
endef

deps: ## install PostgreSQL and ZooKeeper from Debian's packages if they are missing
	$(call install)

# The race detector needs a C compiler; strace is the witness of what the broker
# asks of the kernel.
test-deps:
	$(call install,gcc strace)

run: build deps ## build, then run the whole service with its demonstration; ARGS=--once, --detach, ...
	@exec $(BIN)/penstock dev --dir $(DIR) $(ARGS)

stop: ## stop the service that `make run ARGS=--detach` left running
	@[ ! -x $(BIN)/penstock ] || $(BIN)/penstock dev stop --dir $(DIR)

test: test-deps lint ## vet, staticcheck and all tests, with the race detector
	$(GO) test -race -timeout 20m ./...

test-race: test-deps ## all tests once more with the race detector, nothing from the cache
	$(GO) test -race -count=1 -timeout 30m ./...

# Each run cuts the power of a disk in memory at random changes; those that fail name
# their seed. SEED=n plays one again.
RUNS        ?= 10000
SEED        ?= -1
test-crash: ## 10,000 seeded power cuts under logs and folders; RUNS=, SEED=
	$(GO) test -count=1 -timeout 30m ./dataplane/commitlog ./dataplane/partition -run PowerCut -crash.runs $(RUNS) -crash.seed $(SEED)
	CLEAN_CRASH_RUNS=60 $(GO) test -count=1 -timeout 30m ./dataplane/commitlog -run TestCrashAtAnyOperationOfAClean

# SEED=n draws the schedule of an earlier run again. What a failed run leaves is in
# bin/chaos: history.jsonl and the brokers' logs. Clocks jump under the plain workload only.
SECONDS     ?= 60
WORKLOAD    ?= chaos
chaos: test-deps ## break a cluster for SECONDS= (60, rests not counted) as SEED= says, and check what its clients were told; WORKLOAD=eos: exactly once
	$(GO) test -count=1 -timeout 0 -v ./dataplane/brokertest/$(WORKLOAD) -run '^(TestChaos|TestExactlyOnce)$$' $(if $(filter chaos,$(WORKLOAD)),-chaos.clock) \
		-$(WORKLOAD).seconds $(SECONDS) -$(WORKLOAD).seed $(patsubst -1,0,$(SEED)) -$(WORKLOAD).keep $(CURDIR)/$(BIN)/chaos $(ARGS)

# One protocol after the other, and in the end many small groups on one broker. The
# members' logs of the last protocol that ran are in bin/groups.
MEMBERS     ?= 200
MANY        ?= 2000
PROTOCOLS   ?= eager cooperative consumer
groups: test-deps ## MEMBERS= (200) join, leave and die in one group for SECONDS= (60), PROTOCOLS= one after the other; MANY= (2000) groups on one broker
	for p in $(PROTOCOLS); do rm -rf $(BIN)/groups; \
		$(GO) test -count=1 -timeout 0 -v ./dataplane/brokertest/groups -run 'TestGroups$$' -groups.length $(SECONDS)s -groups.seed $(patsubst -1,0,$(SEED)) \
			-groups.members $(MEMBERS) -groups.protocols $$p -groups.session 10s -groups.workers 8 -groups.round 60s -groups.pace 500ms -groups.commit 2s \
			-groups.keep $(CURDIR)/$(BIN)/groups $(ARGS) || exit 1; \
	done
	$(GO) test -count=1 -timeout 0 -v ./dataplane/brokertest/groups -run 'TestManyGroups$$' -groups.many $(MANY)

# One after the other, each on one CPU: a line each, and what it found if it did.
fuzz: ## every fuzz target of the data plane, FUZZTIME each (1m)
	@mkdir -p $(BIN); failed=0; \
	for pkg in $$($(GO) list ./dataplane/...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			if $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s -parallel 1 $$pkg >$(BIN)/fuzz.log 2>&1; then \
				echo "ok    $$f ($$pkg): $$(grep -o 'execs: [0-9]*' $(BIN)/fuzz.log | tail -1)"; \
			else \
				echo "FOUND $$f ($$pkg)"; cat $(BIN)/fuzz.log; failed=1; \
			fi; \
		done; \
	done; rm -f $(BIN)/fuzz.log; exit $$failed

bench: build ## compare with Apache Kafka: needs Java 17 and Maven
	$(GO) run ./dataplane/brokertest/bench $(ARGS)

# RUN=names runs those programs of the matrix only, PEER=kafka all of it against Apache Kafka; WRITE=1 writes
# docs/compatibility.md. What programs and brokers say is in bin/compat.
RUN         ?=
PEER        ?= penstock
WRITE       ?=
REQUIREMENTS := controlplane/dev/compat/python/requirements.txt
compat: deps ## suites and programs of other makes against the service; RUN=name, PEER=kafka, WRITE=1: needs Python's venv, Java 17, Maven
	$(call install,kcat nodejs npm)
	@[ -x $(VENV)/bin/pip ] || python3 -m venv $(VENV)
	@cmp -s $(REQUIREMENTS) $(VENV)/requirements.txt || { $(VENV)/bin/pip install -q -r $(REQUIREMENTS) && cp $(REQUIREMENTS) $(VENV)/; }
	@[ -n "$(RUN)" ] || [ $(PEER) != penstock ] || \
		PYTHON=$(VENV)/bin/python $(GO) test -count=1 -timeout 20m -tags compat -v -run TestCompat ./controlplane/dev/devtest
	PYTHON=$(VENV)/bin/python $(GO) test -count=1 -timeout 60m -v -run TestMatrix ./controlplane/dev/compat \
		-matrix -matrix.run '$(RUN)' -matrix.peer $(PEER) -matrix.write=$(if $(WRITE),true,false) -matrix.logs $(CURDIR)/$(BIN)/compat $(ARGS)

compat-kafka: deps ## Apache Kafka: the black-box suite against it, its tools over our logs, folders carried both ways, mixed clusters: needs Java 17 and Maven
	$(GO) test -count=1 -p 1 -timeout 60m -tags compat -v -run 'Kafka|TestCarried|TestMixed|TestJava' ./dataplane/brokertest ./dataplane/brokertest/eos

lint: ## go vet and staticcheck
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

fmt: ## gofmt
	gofmt -l -w .

generate: ## run go generate, and write the broker's dependency list anew
	$(GO) generate ./...
	$(GO) test -run TestBrokerDependencies -update-deps .

clean: stop ## remove what was built; the state of a service stays
	rm -rf $(BIN)
