// Package config turns a process's arguments and environment into one [Config], and refuses to start on
// anything it does not understand. It reads the files that hold secrets; it opens nothing else and connects to nothing.
//
// One table of options serves every command of every binary; cobra parses flags, writes help and completes in
// shells. An option is a flag, --check-addr, or the environment variable of the same name, SLUICE_CHECK_ADDR;
// the flag wins. An empty value is no value: the default holds. Arguments of one-shot commands, such as --tenant
// of "admin apply", are flags only. A secret can be in a file, which SLUICE_…_FILE names.
//
// Parse reports all problems at once. Each names the option as it was given and the value, never a secret one:
//
//   - a flag that does not exist, exists only for other commands, or is given twice
//   - an environment variable that begins with SLUICE_ and is no option; one that only other commands use is
//     fine, so that all binaries can share one environment
//   - a value of the wrong form or outside its range
//   - options that contradict each other, both named
package config
