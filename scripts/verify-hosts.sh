#!/usr/bin/env bash
# Fails if a file names the host of a package registry. Many companies have mirrors, and a lock file with a host breaks
# everybody else's build.
set -euo pipefail
cd "$(dirname "$0")/.."

# In brackets, so that this file does not match.
hosts='registry[.]npmjs[.]org|registry[.]yarnpkg[.]com|proxy[.]golang[.]org|sum[.]golang[.]org|pypi[.]org|pythonhosted[.]org|deb[.]debian[.]org'

# This machine's mirrors.
for url in $(go env GOPROXY | tr ',|' '  ') "$(command -v npm >/dev/null && npm config get registry 2>/dev/null || true)"; do
  host=$(echo "$url" | sed -nE 's,^https?://([^@/]*@)?([^/:]+).*,\2,p' | sed 's/[.]/[.]/g')
  if [ -n "$host" ]; then hosts="$hosts|$host"; fi
done

status=0
git grep --untracked -nIE "$hosts" || status=$?
case "$status" in
  0)
    echo "verify: the lines above name a package registry" >&2
    exit 1
    ;;
  1) ;; # none does
  *)
    echo "verify: git could not search" >&2
    exit "$status"
    ;;
esac
