// Package config parses a process's arguments and environment into a [Config], and refuses whatever it does not
// understand. Reads the files of secrets, and opens no other file or connection.
//
// One table of options serves all commands. An option is a flag, --check-addr, or the environment variable
// SLUICE_CHECK_ADDR; the flag wins, and an empty value means the default. Arguments of one-shot commands, such as
// --tenant of "admin apply", are flags only. A secret may be in a file named by SLUICE_…_FILE.
//
// Parse reports all problems together: unknown, foreign and repeated flags, unknown variables with the prefix SLUICE_
// (those of other commands are fine), invalid values, and contradictions. Secrets are never printed.
package config
