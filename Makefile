# Sandlane's targets. `make help` lists them; .ci/run calls the same ones.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The public key of the publisher of bundles, which a release is built with.
BUNDLE_KEY ?=
ARGS    ?=

# All that make compiles shares one build cache, also of another checkout: without cgo,
# without the checkout's path, and without DWARF, which stripped programs have no use
# for. The compilers collect garbage less often. Both save them a third of their time.
# hack/test.sh compiles once more for the race detector.
ifeq ($(MAKELEVEL),0)
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(shell $(GO) env GOFLAGS) $(shell cat hack/kube/goflags) '-toolexec=env GOGC=400 GOMEMLIMIT=2GiB')
endif

# Tools are built once for each version of theirs and of Go, outside the checkout.
CACHE          := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sandlane/tools
GOVERSION      := $(shell $(GO) env GOVERSION)
pinned         = $(shell awk '$$1 == "$(2)" && $$2 ~ /^v/ { print $$2 }' $(1)/go.mod)
LINT           := $(CACHE)/golangci-lint-$(call pinned,hack/lint,github.com/golangci/golangci-lint/v2)-$(GOVERSION)
GOTESTSUM      := $(CACHE)/gotestsum-$(call pinned,hack/tools,gotest.tools/gotestsum)-$(GOVERSION)
CONTROLLER_GEN := $(CACHE)/controller-gen-$(call pinned,hack/tools,sigs.k8s.io/controller-tools)-$(GOVERSION)
PROMTOOL       := $(CACHE)/promtool-$(call pinned,hack/promtool,github.com/prometheus/prometheus)-$(GOVERSION)

# The version stands in -ldflags; Go's own stamp would make each commit relink
# the helpers that bin/sandlane embeds.
BUILD := $(GO) build -buildvcs=false

# Test programs that the benchmarks run (bench/control).
BENCH_TEST := $(GO) test -c -vet=off -ldflags '-s -w'

# replace copies a file onto one that may be running or mapped: its process keeps the old one.
replace = cp $(1) $(2).new && mv -f $(2).new $(2)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/sandlane with the programs that it embeds, and bin/sandboxd
	@[ -e bin/sandlane ] || { hack/prefetch.sh >/dev/null 2>&1 & }
	$(BUILD) -ldflags '-s -w' -o local/helpers/bin/sandboxd ./cmd/sandboxd
	@mkdir -p bin && $(call replace,local/helpers/bin/sandboxd,bin/sandboxd)
	$(BUILD) -ldflags '-s -w' -o local/helpers/bin/podinit ./local/node/podinit
	$(BUILD) -ldflags '-s -w' -o local/helpers/bin/echo ./test/echo
	@hack/fastpath.sh
	@GO=$(GO) hack/build.sh -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION) -X main.bundleKey=$(BUNDLE_KEY)' -o bin/sandlane ./cmd/sandlane

.PHONY: build-failpoints
build-failpoints: build ## build bin/sandlane-failpoints, which chaos tests can kill, hold and delay at named places
	$(BUILD) -tags failpoints -ldflags '-s -w -X main.version=$(VERSION)-failpoints' -o bin/sandlane-failpoints ./cmd/sandlane

.PHONY: release
release: ## write a signed release of the last commit into DIR (KEY=file of a minisign key, with KEY.pub beside it, VERSION=v1.2.3 PUSH=registry/prefix)
	@hack/release.sh "$(DIR)" "$(KEY)" "$(VERSION)" "$(PUSH)"

.PHONY: image
image: ## build container images as tarballs in bin/images (PUSH=registry/prefix BASE=image ENVOY=image TAG=… PLATFORMS=linux/amd64,linux/arm64)
	@$(if $(ENVOY),hack/fastpath.sh)
	@$(GO) run -C hack/image . -root "$(CURDIR)" -version "$(VERSION)" $(if $(TAG),-tag "$(TAG)") $(if $(PUSH),-push "$(PUSH)") \
		$(if $(BASE),-base "$(BASE)") $(if $(ENVOY),-envoy-base "$(ENVOY)") $(if $(PLATFORMS),-platforms "$(PLATFORMS)") $(ARGS)

.PHONY: run
run: build ## start everything on this machine (ARGS="--port 8080 …")
	@bin/sandlane up $(ARGS)

# What hack/test.sh and hack/helm-test.sh run the tests with.
export GOTESTSUM PROMTOOL CONTROLLER_GEN

.PHONY: test
test: $(GOTESTSUM) ## run the tests of every part; needs root, and says first what is missing
	@hack/test.sh unit e2e e2b

.PHONY: test-more
test-more: $(GOTESTSUM) ## run what CI runs besides: small storms, images, the pages' commands, seconds of chaos, SDKs over TLS, made-up requests; needs root, takes seven minutes
	@hack/test.sh more

.PHONY: test-all
test-all: $(GOTESTSUM) ## both, and all that takes longer: storms, chaos in both modes, fuzzing, mutants; needs root, takes four hours
	@hack/test.sh unit e2e e2b more storm chaos fastpath fuzz mutants bench-once
	@hack/helm-test.sh chart node fastpath egress templates upgrade

.PHONY: unit
unit: $(GOTESTSUM) ## run the tests that need no root
	@hack/test.sh unit

.PHONY: e2b
e2b: $(GOTESTSUM) ## run E2B's real SDKs against the product; needs root, node and python3
	@hack/test.sh e2b

.PHONY: docs-test
docs-test: $(GOTESTSUM) ## run the commands of the users' pages, as pasted, on a stack of their own; needs root, takes a minute
	@hack/test.sh docs

.PHONY: storm
storm: $(GOTESTSUM) ## run the storms and full counts: a thousand sandboxes, claims under failing writes; needs root, takes half an hour
	@hack/test.sh storm

.PHONY: chaos
chaos: $(GOTESTSUM) ## kill and stop processes under load, with three gateways; needs root, takes minutes
	@hack/test.sh chaos

.PHONY: fastpath
fastpath: $(GOTESTSUM) ## run the end-to-end tests and chaos with the fast path off, and fuzz its module; needs root, takes an hour
	@hack/test.sh fastpath

.PHONY: fuzz
fuzz: $(GOTESTSUM) ## fuzz what egress processes read of sandboxes, ten million inputs each; takes an hour
	@hack/test.sh fuzz

.PHONY: helm-test
helm-test: ## test the Helm chart on a real node in namespaces of this machine; needs root
	@hack/helm-test.sh chart

.PHONY: node-test
node-test: ## break pods and kill processes of the chart on that node, under load, also with hits answered inside Envoy, egress by name, and templates by the SDK; upgrade from a release and back; needs root
	@hack/helm-test.sh node fastpath egress templates upgrade

.PHONY: mutants
mutants: $(GOTESTSUM) ## break one rule after the other and see its test fail; takes half an hour, writes test/mutants/results.md
	@hack/test.sh mutants

.PHONY: flaky
flaky: ## look for flaky tests: ten rounds under load, goes on where it was stopped (ARGS="-n 20 ./reconcilers"); takes 40 minutes
	@hack/flaky.sh $(ARGS)

.PHONY: lint
lint: $(LINT) ## run golangci-lint
	$(LINT) run ./...
	cd hack/image && $(LINT) run ./...
	cd hack/release && $(LINT) run ./...
	cd hack/drawings && $(LINT) run ./...
	cd test/console && $(LINT) run ./...
	cd bench && $(LINT) run ./...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## regenerate deepcopy functions, CRDs, protobuf and OpenAPI code, documented manifests and drawings
	$(CONTROLLER_GEN) object paths=./api/v1alpha1
	rm -f api/crds/*.yaml
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=true paths=./api/v1alpha1 output:crd:dir=api/crds
	$(GO) run ./hack/crd api/crds/*.yaml
	hack/proto/generate.sh
	hack/oapi/generate.sh
	$(GO) run ./hack/manifests
	$(GO) run -C hack/drawings . "$(CURDIR)/docs/drawings"

.PHONY: generate-check
generate-check: ## regenerate, and fail if that changed anything
	@hack/generate-check.sh

.PHONY: bench
bench: bench-build ## measure everything against its floors: under 30 minutes on two quiet cores (ARGS="--only dataplane …")
	@hack/bench.sh all $(ARGS)

.PHONY: bench-quick
bench-quick: bench-build ## the same with short rounds, two minutes
	@hack/bench.sh quick $(ARGS)

.PHONY: bench-build
bench-build: build
	cd bench && $(BUILD) -ldflags '-s -w' -o ../bin/sandlane-bench . && $(BUILD) -ldflags '-s -w' -o ../bin/sandlane-bench-floor ./floor
	@if [ -f local/helpers/bin/fastpath.so ]; then $(call replace,local/helpers/bin/fastpath.so,bin/fastpath.so); else rm -f bin/fastpath.so; fi
	$(BENCH_TEST) -o bin/sandlane-bench-sandboxpool ./reconcilers/sandboxpool
	$(BENCH_TEST) -o bin/sandlane-bench-idletimeout ./reconcilers/idletimeout
	$(BENCH_TEST) -o bin/sandlane-bench-reconcilers ./reconcilers

.PHONY: bench-once
bench-once: $(GOTESTSUM) ## run each Go benchmark of the hot paths once, and hits of bench, so that none rots
	@hack/test.sh bench-once

.PHONY: clean
clean: ## remove what build made; caches and the state of `sandlane up` stay
	rm -rf bin $(addprefix local/helpers/bin/,podinit echo sandboxd fastpath.so)

$(LINT):
	$(GO) build -C hack/lint -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOTESTSUM):
	$(GO) build -C hack/tools -o $@ gotest.tools/gotestsum

$(CONTROLLER_GEN):
	$(GO) build -C hack/tools -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(PROMTOOL):
	$(GO) build -C hack/promtool -ldflags '-s -w' -o $@ github.com/prometheus/prometheus/cmd/promtool
