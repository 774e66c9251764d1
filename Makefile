# Hawser's targets. `make help` lists them.

GO      ?= go
BIN     := $(CURDIR)/bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)

# What the tests need of Debian: kernels that run as processes, hosts in network
# namespaces, the mount helpers, the programs that do the work; and a C compiler
# for the race detector.
PACKAGES := user-mode-linux kmod iproute2 nfs-common sqlite3 git gcc libc6-dev ca-certificates

.DEFAULT_GOAL := help

## help: list the targets
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## build: build bin/hawser
build:
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/hawser ./cmd/hawser

## run: start a three-node cluster on this machine, print the mount line, stop on Ctrl-C (data stays in ./bin/dev)
run: build
	@exec $(BIN)/hawser dev --dir $(BIN)/dev

# How long the simulator runs beside the other tests, on what they leave of a processor.
SIM ?= 10m

## test: install what the tests need, and run them all, kernel clients included
test: packages
	@$(GO) test -c -o $(BIN)/sim.test ./tools/sim
	@(cd tools/sim && HAWSER_SIM=$(SIM) GOMAXPROCS=1 exec nice -n 19 $(BIN)/sim.test -test.run TestWorlds -test.timeout 2h) >$(BIN)/sim.log 2>&1 & sim=$$!; \
	trap 'kill $$sim 2>/dev/null' EXIT; set -ex; \
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v -e /tools/systest -e /tools/sim); \
	$(GO) test -timeout 10m ./tools/sim; \
	$(GO) test -count=1 -timeout 10m -run '^TestScale' -v ./nfsd ./vfs ./cluster/fsm/volume; \
	$(GO) test -count=1 -timeout 60m -parallel 2 -v ./tools/systest; \
	set +e; wait $$sim; status=$$?; cat $(BIN)/sim.log; exit $$status

## test-short: the tests that need no root and no kernel client
test-short:
	$(GO) test -short ./...

## lint: formatting, vet, staticcheck, the layer rules, and that generated files are current
lint: $(BIN)/staticcheck $(BIN)/gofumpt
	@test -z "$$($(BIN)/gofumpt -l . | tee /dev/stderr)" || { echo 'run make fmt'; exit 1; }
	$(GO) vet ./...
	$(BIN)/staticcheck ./...
	cd tools/lint && $(GO) vet ./... && $(GO) test -count=1 ./...
	$(GO) mod verify >/dev/null
	$(GO) mod tidy -diff

## fmt: format the code
fmt: $(BIN)/gofumpt
	$(BIN)/gofumpt -w .

## generate: make the generated files anew
generate:
	$(GO) generate ./...

## soak: the simulator, the crash tests and the linearizability test for SOAK each (default 10m), kernel clients under faults three times
SOAK ?= 10m
# How often TestStalls does each fault.
FAULTS ?= 100
soak: packages
	HAWSER_SIM=$(SOAK) $(GO) test -count=1 -timeout 24h -run 'TestWorlds' -v ./tools/sim
	HAWSER_LIN=$(SOAK) $(GO) test -count=1 -timeout 24h -v ./tools/lin
	HAWSER_SEEDS=2000 $(GO) test -count=1 -timeout 24h -run Crash ./datastore/segment
	HAWSER_SOAK=1 $(GO) test -count=3 -timeout 24h -v -run 'Death|PowerCut|Failover' ./tools/systest
	HAWSER_FAULTS=$(FAULTS) HAWSER_SESSIONS=100 $(GO) test -count=1 -timeout 24h -v -run Stalls ./tools/systest

## bench: run the benchmarks
bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

## compare: measure `ls -l` and `find` through a kernel client beside nfs-ganesha, which is installed
compare: PACKAGES += nfs-ganesha nfs-ganesha-vfs
compare: packages
	HAWSER_COMPARE=1 $(GO) test -count=1 -timeout 1h -run TestAgainstGanesha -v ./tools/systest

## fuzz: fuzz each decoder for FUZZTIME (default 10s)
FUZZTIME ?= 10s
fuzz:
	@for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
		done; \
	done

## clean: remove what was built, and the cluster of `make run` with its data
clean:
	rm -rf $(BIN)

packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		missing=; for p in $(PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
		if [ -n "$$missing" ]; then \
			echo "installing$$missing"; apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null; \
		fi; \
	else \
		echo 'NOT ROOT, OR NOT DEBIAN: the kernel-client tests need root and: $(PACKAGES)'; \
	fi

$(BIN)/staticcheck: tools/lint/go.mod
	cd tools/lint && $(GO) build -o $@ honnef.co/go/tools/cmd/staticcheck

$(BIN)/gofumpt: tools/lint/go.mod
	cd tools/lint && $(GO) build -o $@ mvdan.cc/gofumpt

.PHONY: help build run test test-short lint fmt generate soak bench compare fuzz clean packages
