// Package adapt lowers the rates of rules while the backend behind them is overloaded, and raises them again when it is
// well.
//
// Services report the latency and errors that they saw of a backend. A [Reports] sums them up in memory and writes the sums
// every two seconds. A [Loop] reads the sums of the last minute, judges every rule that adapts with [Decide], and writes
// steps, which reach checks with the rules. One process at a time is the leader whose Loop decides; if it dies, another
// takes over within [LeadFor].
//
// When the database is away, reports are dropped and no steps are written. A step ends a minute after it was last renewed,
// so the configured rates are in force again then. The same happens when no reports come, or when every Loop is dead. No
// part of it is on a check's way.
package adapt
