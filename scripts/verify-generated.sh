#!/usr/bin/env bash
# Fails if `make generate` would change anything. It works on a copy, including uncommitted changes, so that the
# checkout stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

# Install here if needed. In the copy npm would empty this folder through the link, and replace the link.
make --no-print-directory web/node_modules/.package-lock.json >/dev/null

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/before" "$copy/after"

# Every file that is or would be committed; deleted ones do not exist.
git ls-files --cached --others --exclude-standard -z |
  while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done |
  tar --null -T - -cf - | tee >(tar -xf - -C "$copy/before") | tar -xf - -C "$copy/after"
ln -s "$PWD/.bin" "$copy/after/.bin"
ln -s "$PWD/web/node_modules" "$copy/after/web/node_modules"

make --no-print-directory -C "$copy/after" generate >/dev/null
rm "$copy/after/.bin" "$copy/after/web/node_modules"

if ! diff --recursive --new-file --unified "$copy/before" "$copy/after"; then
  echo "verify: the lines above are what make generate would change" >&2
  exit 1
fi
