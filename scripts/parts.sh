#!/usr/bin/env bash
# Runs targets of the Makefile: parts.sh LANE... [-- LANE...]... makes the lanes up to the next -- side by side, each a
# list of targets in order. A target's output is printed when it ends, and the first that fails ends all. The seconds
# that each took stand in .bin/parts (or $PARTS), so that the next run says them in advance.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${PARTS:-.bin/parts}
mkdir -p "$folder/test"

spoken() { if [ "$1" -lt 100 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi; }

last() { if [ -e "$folder/$1.seconds" ]; then echo ", $(spoken "$(cat "$folder/$1.seconds")") last time"; fi; }

part() {
  local began took status=0
  began=$(date +%s)
  echo "make $1: begins$(last "$1")" >&2
  ${MAKE:-make} --no-print-directory "$1" > "$folder/$1.log" 2>&1 </dev/null || status=$?
  took=$(($(date +%s) - began))
  cat "$folder/$1.log"
  if [ "$status" -ne 0 ]; then
    echo "make $1: failed after $(spoken "$took"); its output is above and in $folder/$1.log" >&2
    return 1
  fi
  echo "$took" > "$folder/$1.seconds"
  echo "make $1: took $(spoken "$took")" >&2
}

lane() {
  local target
  for target in $1; do
    part "$target" || { kill -USR1 $$; exit 1; }
  done
}

lanes=()
stop() {
  trap '' USR1 INT TERM
  local one
  for one in ${lanes[@]+"${lanes[@]}"}; do kill -TERM -- "-$one" 2>/dev/null || true; done
  wait
  exit "$1"
}
trap 'stop 1' USR1
trap 'stop 130' INT
trap 'stop 143' TERM

together() {
  lanes=()
  local targets one
  for targets in "$@"; do
    lane "$targets" &
    lanes+=($!)
  done
  for one in "${lanes[@]}"; do wait "$one" || stop 1; done
}

began=$(date +%s)
echo "make test: begins$(last all)" >&2
set -m # each lane is a process group of its own
side_by_side=()
for one in "$@" --; do
  if [ "$one" != -- ]; then side_by_side+=("$one"); continue; fi
  together "${side_by_side[@]}"
  side_by_side=()
done
echo $(($(date +%s) - began)) > "$folder/all.seconds"
echo "make test: all passed in $(spoken "$(cat "$folder/all.seconds")")" >&2
