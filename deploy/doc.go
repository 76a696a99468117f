// Package deploy has what Sluice is run with: units for systemd, a compose file, a Helm chart, dashboards and alerts.
// Its tests hold them against the programs. deploy/release writes releases.
package deploy
