#!/usr/bin/env bash
# Searches for rare failures: long loads and outages, property tests with many cases, and every fuzz test for a while.
#
#   CASES=20000 FUZZTIME=1m scripts/soak.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cases=${CASES:-20000}
fuzztime=${FUZZTIME:-1m}

go test -race -timeout=0 ./e2e -soak
go test -timeout=0 ./internal/enforce/lease -run 'Model|ManyProcesses|Hostile' -v -soak # prints what leases admit
go test -timeout=0 ./client -run 'Model|AmongFaults' -v -soak
go test -race -timeout=0 ./internal/store/redisbucket ./internal/store/pgbucket -run 'Faults|Linearizable|NoAlgorithmAdmits' -soak

files_with() { grep -rlE --include='*_test.go' "$1" internal db cmd 2>/dev/null || true; }

properties=$(files_with '"pgregory.net/rapid"' | xargs -r -n1 dirname | sort -u | sed 's,^,./,')
if [ -n "$properties" ]; then
  # shellcheck disable=SC2086 # a list of packages
  go test -race -timeout=0 $properties -rapid.checks="$cases"
fi

for file in $(files_with '^func Fuzz'); do
  for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' "$file"); do
    go test -run='^$' -fuzz="^$name\$" -fuzztime="$fuzztime" "./$(dirname "$file")"
  done
done
