#!/usr/bin/env bash
# Says where `make test` is: part.sh 3/9 'Go tests' ends the former part and begins one, part.sh end ends the last. What
# each part took stands in .bin/parts (or $PARTS), so that the next run says it in advance.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${PARTS:-.bin/parts}
mkdir -p "$folder"
now=$(date +%s)

# spoken prints seconds as people say them.
spoken() { if [ "$1" -lt 100 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi; }

case "$1" in
  1/*)
    rm -f "$folder/begun"
    echo "$now" > "$folder/all"
    if [ -e "$folder/last" ]; then
      echo "make test: ${1#1/} parts, $(spoken "$(cat "$folder/last")") last time" >&2
    else
      echo "make test: ${1#1/} parts, about half an hour on two cores" >&2
    fi
    ;;
esac
if [ -e "$folder/begun" ]; then
  IFS=$'\t' read -r since part name < "$folder/begun"
  echo $((now - since)) > "$folder/${part%/*}"
  echo "make test $part: $name took $(spoken $((now - since)))" >&2
  rm "$folder/begun"
fi
if [ "$1" = end ]; then
  echo $((now - $(cat "$folder/all"))) > "$folder/last"
  echo "make test: all passed in $(spoken "$(cat "$folder/last")")" >&2
  exit
fi
last=
if [ -e "$folder/${1%/*}" ]; then last=", $(spoken "$(cat "$folder/${1%/*}")") last time"; fi
printf '%s\t%s\t%s\n' "$now" "$1" "$2" > "$folder/begun"
echo "make test $1: $2$last" >&2
