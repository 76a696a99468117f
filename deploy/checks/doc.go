// Package checks tests the Helm chart and the alerts with Helm's and Prometheus's own code, offline. A module of its
// own keeps their dependencies out of Sluice's.
package checks
