#!/usr/bin/env bash
# Fails if a document names a file of this repository, or a Go test, that does not exist. A path is a word in backquotes
# that begins with a folder of the repository; names in capitals are placeholders. A test is a word that begins with
# Test and a capital.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
while IFS=: read -r document path; do
  if [ ! -e "$path" ]; then
    echo "verify: $document names $path, which does not exist" >&2
    status=1
  fi
done < <(git grep -oE '`(api|bench|cmd|db|docs|e2e|internal|scripts|tools|web/(src|e2e))/[A-Za-z0-9_./-]+`' -- '*.md' ':!CHANGELOG.md' |
  tr -d '`' | grep -vE 'NNNNN|NAME' | grep -vE '^web/README.md:e2e/' | sort -u)

while IFS=: read -r document name; do
  if ! git grep -qE "^func $name\\(" -- '*_test.go'; then
    echo "verify: $document names $name, which does not exist" >&2
    status=1
  fi
done < <(git grep -owE 'Test[A-Z][A-Za-z0-9]+' -- '*.md' ':!CHANGELOG.md' | grep -vE ':TestName$' | sort -u)
exit "$status"
