// Package deploy has what Sluice is run with, and tests that hold it against the programs.
package deploy
