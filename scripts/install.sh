#!/usr/bin/env bash
# Installs what Sluice needs and this machine lacks.
#
#   scripts/install.sh run    for `make run`: Postgres, and Redis if it can be had; without Redis,
#                             `sluice dev` keeps buckets in memory and says so
#   scripts/install.sh test   for `make test`: Postgres, Redis, a C compiler for the race detector, curl, a
#                             browser, the proxies nginx, Caddy and HAProxy, and Python with httpx, Django
#                             and mypy
#   scripts/install.sh python prints which Python has those
#   scripts/install.sh ui     says whether the UI can be built here, and if not, why
#
# If nothing is missing it changes nothing and uses no network. It only ever installs programs: no
# service is started, now or at the next boot, because Sluice runs servers of its own.
#
# It keeps to what bash 3.2 knows, which is what macOS has.
set -euo pipefail

readonly oldest_postgres=15 # UNIQUE NULLS NOT DISTINCT
readonly oldest_redis=7

say() { echo "install: $*" >&2; }

# --- what is there ---------------------------------------------------------------------------

# Folders of Postgres servers outside PATH; internal/devdb searches them too.
postgres_folders() {
  local folder
  command -v postgres >/dev/null && dirname "$(command -v postgres)"
  for folder in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
    /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin; do
    [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ] && echo "$folder"
  done
  return 0
}

has_postgres() {
  local folder version
  for folder in $(postgres_folders); do
    # "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)" → 15
    version=$("$folder/postgres" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
    [ "$version" -ge "$oldest_postgres" ] && return 0
  done
  return 1
}

has_redis() {
  local version
  command -v redis-server >/dev/null || return 1
  # "Redis server v=7.0.15 sha=00000000:0 malloc=…" → 7
  version=$(redis-server --version | sed -nE 's/^.*server v=([0-9]+).*/\1/p')
  [ "${version:-0}" -ge "$oldest_redis" ]
}

has_compiler() { command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null; }

# The tests search for the same names.
has_chromium() {
  local browser
  for browser in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null && return 0
  done
  return 1
}

has_curl() { command -v curl >/dev/null; }

# The tests run the examples of gateways. Debian keeps two of these programs in /usr/sbin.
has_proxies() {
  local proxy
  for proxy in nginx caddy haproxy; do
    PATH="$PATH:/usr/sbin" command -v "$proxy" >/dev/null || return 1
  done
}

# Node is not installed from here. Vite needs this version.
readonly oldest_node=20.19
has_node() {
  command -v npm >/dev/null || return 1
  node -e "const [a, b] = process.versions.node.split('.'), [c, d] = '$oldest_node'.split('.');
    process.exit(+a > +c || (a === c && +b >= +d) ? 0 : 1)"
}

# The Python client's test dependencies: packages on Debian and Ubuntu, elsewhere a virtual environment.
readonly python_venv=clients/python/.venv
python() {
  local one
  for one in "$PWD/$python_venv/bin/python" python3 /usr/bin/python3; do
    if command -v "$one" >/dev/null && "$one" -c 'import httpx, django, mypy, flit_core' >/dev/null 2>&1; then
      command -v "$one"
      return
    fi
  done
  return 1
}
has_python() { python >/dev/null; }

# Go is not installed from here, because distributions are versions behind.
require_go() {
  if ! command -v go >/dev/null; then
    say "Go is missing; see https://go.dev/doc/install"
    return 1
  fi
  if ! go list -m >/dev/null; then
    say "this Go is too old; go.mod says which is needed: https://go.dev/doc/install"
    return 1
  fi
}

# --- Debian and Ubuntu -----------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "installing packages needs root, and there is no sudo"
    return 1
  fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

apt_install() {
  say "apt-get install $*"
  apt install --no-install-recommends -y "$@" >/dev/null 2>&1 && return 0
  say "apt-get update, because that failed"
  apt update
  apt install --no-install-recommends -y "$@" >/dev/null
}

# Packages start their services unless this file forbids that. An existing file is not ours to change.
readonly policy=/usr/sbin/policy-rc.d
without_starting_services() {
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy" || return
  trap 'as_root rm -f "$policy"' EXIT
  local status=0
  "$@" || status=$?
  as_root rm -f "$policy"
  trap - EXIT
  return "$status"
}

not_at_boot() {
  if [ -d /run/systemd/system ]; then
    as_root systemctl disable --quiet "$1" || say "could not keep $1 from starting at boot"
  fi
}

debian_postgres() {
  # postgresql-common comes first, so that the server package creates no cluster.
  if ! dpkg-query -W postgresql-common >/dev/null 2>&1; then
    apt_install postgresql-common || return
    as_root sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' \
      /etc/postgresql-common/createcluster.conf || return
  fi
  apt_install postgresql || return
  if ! has_postgres; then
    say "this release packages a Postgres older than $oldest_postgres; https://apt.postgresql.org has newer ones"
    return 1
  fi
}

debian_redis() {
  apt_install redis-server && not_at_boot redis-server || return
  if ! has_redis; then
    say "this release packages a Redis older than $oldest_redis; https://packages.redis.io has newer ones"
    return 1
  fi
}
debian_chromium() { apt_install chromium-headless-shell || apt_install chromium; } # Ubuntu has no such package
debian_compiler() { apt_install gcc libc6-dev; }
debian_curl() { apt_install curl; }
debian_proxies() {
  apt_install nginx-light caddy haproxy && not_at_boot nginx && not_at_boot caddy && not_at_boot haproxy
}
debian_python() { apt_install python3 python3-httpx python3-django mypy flit; }

# --- macOS -----------------------------------------------------------------------------------

brew_postgres() { brew install --quiet postgresql@17 >&2; }
brew_redis() { brew install --quiet redis >&2; }
brew_chromium() { brew install --quiet --cask chromium >&2; }
brew_curl() { brew install --quiet curl >&2; }
brew_proxies() { brew install --quiet nginx caddy haproxy >&2; }
brew_python() {
  command -v python3 >/dev/null || brew install --quiet python >&2
  python3 -m venv $python_venv && $python_venv/bin/pip install --quiet httpx django mypy flit_core >&2
}
brew_compiler() {
  say "a C compiler is missing; run: xcode-select --install"
  return 1
}

# --- anywhere --------------------------------------------------------------------------------

# install <postgres|redis|compiler|chromium|curl|proxies|python> <what to tell a person>
install() {
  if command -v apt-get >/dev/null; then
    without_starting_services "debian_$1"
  elif command -v brew >/dev/null; then
    "brew_$1"
  else
    say "$2 is missing, and this is neither Debian, Ubuntu nor a Mac with Homebrew: please install it"
    return 1
  fi
}

main() {
  if [ "${1:-}" = ui ]; then
    has_node && exit 0
    say "Node $oldest_node or later and npm are missing: going on without the UI; see https://nodejs.org"
    exit 1
  fi
  if [ "${1:-}" = python ]; then
    python && exit 0
    say "no Python has httpx, Django and mypy; run: scripts/install.sh test"
    exit 1
  fi
  require_go || exit 1
  has_postgres || install postgres "PostgreSQL $oldest_postgres or later" || exit 1
  case "${1:-}" in
    run)
      has_redis || install redis "Redis $oldest_redis or later" ||
        say "going on without Redis: buckets will be in memory"
      ;;
    test)
      has_redis || install redis "Redis $oldest_redis or later" || exit 1
      has_compiler || install compiler "a C compiler, which the race detector needs," || exit 1
      has_chromium || install chromium "Chromium" || exit 1
      has_curl || install curl "curl, which the browser tests paste lines of," || exit 1
      has_proxies || install proxies "nginx, Caddy or HAProxy, whose examples are tested," || exit 1
      has_python || install python "Python 3 with httpx, Django and mypy, for the Python client," || exit 1
      if ! has_node; then
        say "the UI's tests need Node $oldest_node or later and npm; see https://nodejs.org"
        exit 1
      fi
      ;;
    *)
      say "usage: scripts/install.sh run|test|python|ui"
      exit 2
      ;;
  esac
}

cd "$(dirname "$0")/.."
main "$@"
