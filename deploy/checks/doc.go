// Package checks tests the Helm chart and the alerts with Helm's and Prometheus's own code, in a module of its own
// that keeps their dependencies out of Sluice's.
package checks
