# `make` lists the targets.
#
# Tools (generators, linters) are pinned in tools/go.mod and built into .bin when that changes. `make run` and `make
# test` need none of them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

# Go's installer puts go there; fresh machines often lack the folder on PATH.
export PATH := $(PATH):/usr/local/go/bin

# Nothing here needs C. Only the race detector does; all else shares one compilation.
export CGO_ENABLED := 0

# Compilers collect garbage a third as often, which saves a fifth of the time. The programs that they
# compile run with their usual settings.
ifeq (,$(findstring -toolexec,$(GOFLAGS)))
export GOFLAGS := $(shell PATH="$(PATH)" go env GOFLAGS 2>/dev/null) "-toolexec=env GOGC=300 GOMEMLIMIT=1200MiB"
endif

# Folders with Go modules. tools only pins versions; the code of all others is ours.
ALL_MODULES := $(dir $(wildcard go.mod */go.mod */*/go.mod))
MODULES := $(filter-out tools/,$(ALL_MODULES))

each_module = @for module in $(MODULES); do \
	echo "$$module: $(1)"; (cd "$$module" && $(1)) || exit 1; done

.PHONY: help
help: ## List what there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Install what is missing and start everything, with demo data (ARGS="--check-addr …" is passed on)
	@# Go compiles while the UI is installed and built. What fails is said below, by the build of the binary.
	@go build ./internal/app/dev >/dev/null 2>&1 & scripts/install.sh run; \
	if scripts/install.sh ui; then $(MAKE) --no-print-directory web/dist/index.html; fi; \
	echo "building" >&2; wait
	@go build -o .bin/sluice ./cmd/sluice
	@# Not by go run: it would keep signals for itself and its exit status would hide sluice's.
	@exec .bin/sluice dev $(ARGS)

# Go's tests often wait, so they run beside all others.
.PHONY: test
test: ## Install what is missing and run every test; says how long each part takes
	@MAKE="$(MAKE)" scripts/parts.sh test/ready -- \
		'test/go test/serial' 'test/ui test/typescript test/python test/browser'

.PHONY: test/ready
test/ready:
	@scripts/install.sh test
	@$(MAKE) --no-print-directory web/dist/index.html
	go build -o .bin/sluice ./cmd/sluice

# Tests of a single goroutine, or that ask one thing after another, in which the race detector, ten times slower there,
# finds nothing that other tests do not.
SERIAL := ^Test(Model|TheModelSees|HandlesAmongFaults|Hostile|AMillionKeys|EveryOperationAnswers)

# A machine that is slow or busy needs more than the ten minutes that go test gives a package. make verify vets. Not by
# the race detector in e2e, which starts the binaries, whose races it cannot see, nor in deploy and bench: it would
# compile Helm, Prometheus and other limiters once more, and nothing of ours runs at once in their tests. Results of
# other modules are not kept: go does not see changes of files outside of a module.
go_test := go test -vet=off -timeout 60m

.PHONY: test/go
test/go:
	CGO_ENABLED=1 $(go_test) -race -skip '$(SERIAL)' $$(go list ./... | grep -v '/e2e$$')
	$(go_test) ./e2e
	cd client/grpc && CGO_ENABLED=1 $(go_test) -race -count=1 ./...
	@for module in $(filter-out ./ client/grpc/, $(MODULES)); do \
		echo "$$module"; (cd "$$module" && $(go_test) -count=1 ./...) || exit 1; done

.PHONY: test/serial
test/serial:
	$(go_test) -run '$(SERIAL)' ./client ./internal/adminapi ./internal/enforce/lease ./internal/store/membucket

.PHONY: test/ui
test/ui:
	cd web && npm run --silent check && npm run --silent test

.PHONY: test/browser
test/browser:
	cd web && npm run --silent e2e

.PHONY: test/typescript
test/typescript:
	@$(MAKE) --no-print-directory clients/typescript/node_modules/.package-lock.json
	cd clients/typescript && ../../web/node_modules/.bin/biome check --error-on-warnings && npm run --silent test

.PHONY: test/python
test/python:
	@python=$$(scripts/install.sh python) && cd clients/python && \
		"$$python" -m mypy && PYTHONPATH=src "$$python" -W ignore::ResourceWarning -m unittest

.PHONY: screenshots
screenshots: ## Write a picture of every screen, light and dark, wide and narrow, to web/screenshots
	@scripts/install.sh test
	@$(MAKE) --no-print-directory web/dist/index.html
	go build -o .bin/sluice ./cmd/sluice
	cd web && npm run --silent screenshots

.PHONY: lighthouse
lighthouse: ## Print what Lighthouse says of every screen and dialog; SCREEN=overview asks about one
	@scripts/install.sh test
	@$(MAKE) --no-print-directory web/dist/index.html
	go build -o .bin/sluice ./cmd/sluice
	cd web && npm run --silent lighthouse

# Vite writes index.html last, so it is older than any newer source.
web/dist/index.html: web/node_modules/.package-lock.json web/index.html web/reference.html web/vite.config.ts \
		$(shell find web/src web/public deploy/examples -type f)
	@echo "building the UI" >&2
	@cd web && npm run --silent build -- --logLevel warn
	@touch $@

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@echo "installing what the UI is built with" >&2
	@cd web && npm ci --loglevel error
	@touch $@

clients/typescript/node_modules/.package-lock.json: clients/typescript/package.json clients/typescript/package-lock.json
	@echo "installing what the TypeScript client is tested with" >&2
	@cd clients/typescript && npm ci --loglevel error
	@touch $@

.PHONY: generate
generate: .bin/sqlc .bin/oapi-codegen .bin/gofumpt web/node_modules/.package-lock.json ## Write generated code and tables, and format code
	.bin/sqlc generate
	.bin/oapi-codegen -config internal/adminapi/oapi-codegen.yaml api/openapi.yaml
	cd web && npm run --silent generate && npm run --silent format
	go test ./internal/config -run '^TestDocumentation' -update
	go test ./deploy -run '^TestPackagesAndImages' -update
	.bin/gofumpt -w .

.PHONY: verify
verify: lint .bin/sqlc .bin/oapi-codegen .bin/gofumpt ## Check all that needs no running: lint, generated code, go.mod files, scripts
	scripts/verify-generated.sh
	@for module in $(ALL_MODULES); do \
		echo "$$module: go mod tidy -diff"; (cd "$$module" && go mod tidy -diff) || exit 1; done
	scripts/verify-hosts.sh
	scripts/verify-docs.sh
	@for script in scripts/*.sh .ci/run; do bash -n "$$script" || exit 1; done

.PHONY: lint
lint: .bin/golangci-lint ## Run the linters of .golangci.yaml
	$(call each_module,$(CURDIR)/.bin/golangci-lint run ./...)

.PHONY: bench
bench: ## Compare with other designs, in one table (bench/README.md says what it measures)
	@scripts/install.sh test
	@$(MAKE) --no-print-directory clients/typescript/node_modules/.package-lock.json
	@cd bench && go run . $(ARGS)

.PHONY: compare
compare: ## Compare with other rate limiters on this machine, in a Markdown table (ARGS=-full: more loads and callers)
	@scripts/install.sh test
	@cd bench && go run . -compare $(ARGS)

.PHONY: release
release: ## Write archives, container images and checksums to dist (VERSION=v1.4.0, ARGS="-push registry/sluice")
	@$(MAKE) --no-print-directory web/dist/index.html
	@cd deploy/release && go run . -version "$(VERSION)" $(ARGS)

.PHONY: soak
soak: ## Search for rare failures: outages, property and fuzz tests at length (CASES=20000 FUZZTIME=1m)
	@scripts/install.sh test
	scripts/soak.sh

tool/golangci-lint := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
tool/gofumpt       := mvdan.cc/gofumpt
tool/sqlc          := github.com/sqlc-dev/sqlc/cmd/sqlc
tool/oapi-codegen  := github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen

.bin/%: tools/go.mod tools/go.sum
	@echo "building $* (once for each change of tools/go.sum)"
	@cd tools && go build -o ../$@ $(tool/$*)
