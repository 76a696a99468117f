// Package checks tests the Helm chart and the alerts as Helm and Prometheus themselves would judge them, offline. It is
// a module of its own, because both bring many modules along.
package checks
