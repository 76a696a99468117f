#!/usr/bin/env bash
# Draws the Grafana dashboards of deploy/chart/files/dashboards while a benchmark runs, to docs/images.
#
# A real Prometheus scrapes the processes of `make bench` and answers the dashboards' queries. Grafana is not needed: the
# panels are drawn from the dashboards' files with the charts of the web UI, by web/e2e/dashboards.ts.
#
#   BENCH='-only dashboards -rounds 8' scripts/dashboards.sh
set -euo pipefail
cd "$(dirname "$0")/.."

bench=${BENCH:-"-only dashboards -rounds 5"}
version=$(cd deploy/checks && go list -m -f '{{.Version}}' github.com/prometheus/prometheus)
prometheus=$PWD/.bin/prometheus-$version
if [ ! -x "$prometheus" ]; then
  echo "building Prometheus $version (once)" >&2
  folder=$(mktemp -d)
  # Without the clients of all clouds, which it would find targets with.
  GOBIN=$folder CGO_ENABLED=0 go install -tags remove_all_sd "github.com/prometheus/prometheus/cmd/prometheus@$version"
  mv "$folder/prometheus" "$prometheus"
  rmdir "$folder"
fi

data=$(mktemp -d)
mkdir -p bench/results
rm -f bench/results/targets.json
cat >"$data/prometheus.yaml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: sluice
    file_sd_configs: [{files: ["$PWD/bench/results/targets.json"], refresh_interval: 1s}]
YAML
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$prometheus" --config.file="$data/prometheus.yaml" --storage.tsdb.path="$data/tsdb" --web.listen-address="127.0.0.1:$port" \
  --log.level=warn &
pid=$!
trap 'kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null || true; rm -rf "$data"' EXIT

began=$(date +%s)
# shellcheck disable=SC2086 # several words
(cd bench && go run . $bench)
PROMETHEUS="http://127.0.0.1:$port" SINCE=$began npm --prefix web run --silent e2e
