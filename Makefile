# `make help` lists what there is. Everything runs from a clean clone with Go and nothing else; PostgreSQL is found or fetched.

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
COUNT ?= 1

.PHONY: help build check format vet test race lab lab-repeat ts web web-test tutorial generate bench demo dev clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 14

build: ## the program, at bin/tidings
	go build -o bin/tidings ./cmd/tidings

check: format vet test ## format, vet, staticcheck, generated files, tests

format:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }

vet:
	go vet ./...
	cd bench && go vet ./...
	$(STATICCHECK) ./...

test: ## all tests but the lab's checks; generated files are compared by tests
	go test $$(go list ./... | grep -v '/lab$$')

race: ## the same under the race detector
	go test -race $$(go list ./... | grep -v '/lab$$')

# A failing check still leaves a report: both exit codes count. A cached run would write no evidence.
lab: ## the checks, once each, and the acceptance table (evidence in lab/evidence)
	rm -rf lab/evidence
	go test ./lab -count=$(COUNT) -timeout 60m; tests=$$?; \
	go run ./lab/cmd/tidings-lab selftest && go run ./lab/cmd/tidings-lab report && exit $$tests

lab-repeat: ## the checks 20 times each
	$(MAKE) lab COUNT=20

ts: ## the TypeScript client: types, tests with a real server and a real browser (needs Node 20.10 and Chromium)
	cd clients/ts && npm ci --no-audit --no-fund && npm run check && npm test

web: ## build the demo page's script and the client that `tidings dev` serves anew (needs Node 20.10)
	cd console/web && npm ci --no-audit --no-fund && npm run build

web-test: ## the demo page and the console: what is built is what the sources give; types, tests with a real server and a real browser (needs Chromium, too)
	cd console/web && npm ci --no-audit --no-fund && npm run check && npm test

tutorial: ## follow docs/tutorial.md by its own text, in a copy of this tree and a real browser (needs Node 20.10, Chromium and the free port 9000)
	cd clients/ts && npm ci --no-audit --no-fund && npm run tutorial

generate: ## write the generated documents anew
	go test . -run TestStatesDocument -update
	go test ./schema -run TestDump -update
	go test ./internal/server ./internal/api -run 'Reference|OpenAPI' -update

bench: ## measure beside River and a plain claim (takes minutes; not part of the tests)
	cd bench && go run .

demo: ## the whole story, printed
	go run ./cmd/tidings demo

dev: ## a running server to play with, until stopped
	go run ./cmd/tidings dev

# For root the data of `make dev` lie elsewhere, behind a link.
clean: ## what the targets above left behind
	@pg=$$(readlink .tidings/pg); case "$$pg" in /var/tmp/tidings-*|/tmp/tidings-*) rm -rf "$$pg";; esac
	rm -rf bin lab/evidence .tidings
