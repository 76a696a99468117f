// Package config parses a process's arguments and environment into a [Config], and refuses whatever it does not
// understand.
//
// An option is a flag, --check-addr, or the environment variable SLUICE_CHECK_ADDR; the flag wins, and an empty value
// means the default. A secret may be in a file named by SLUICE_…_FILE. Parse reports all problems together.
// Secrets are never printed.
package config
