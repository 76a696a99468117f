// Package config turns a process's arguments and environment into one [Config], and refuses to
// start on anything it does not understand.
//
// One table of options serves every command of every binary. An option is given as a flag,
// --check-addr, or as the environment variable of the same name, SLUICE_CHECK_ADDR; the flag wins.
// An empty value is no value: the default holds. What a one-shot command works on, such as --tenant
// of "admin apply", is a flag only.
//
// Parse reports everything that is wrong at once, and each problem names the option as it was
// given, the value (never a secret one), and what was expected:
//
//   - a flag that does not exist, exists only for other commands, or is given twice
//   - an environment variable that begins with SLUICE_ and is no option; a known one that the
//     command has no use for is fine, so that all binaries can share one environment
//   - a value of the wrong form or outside its range
//   - options that contradict each other, both named
//
// The package opens nothing and connects to nothing: whether a database answers is for whoever
// uses its URL. It keeps no state; a Config is a value to hand down.
package config
