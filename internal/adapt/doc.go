// Package adapt lowers the rates of rules while the backend behind them is overloaded, and raises them again
// afterwards.
//
// Services report the latency and errors of a backend. [Reports] writes sums every two seconds. A [Loop] reads the last
// minute, calls [Decide] for every adapting rule, and writes steps, which reach checks with the rules. One process is
// the leader; after its death another takes over within [LeadFor]. A step ends a minute after its last renewal:
// without a database, reports or a leader, the configured rates return.
package adapt
