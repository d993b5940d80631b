// Package control measures what the controller costs at the sizes that its budgets
// name: one pod's event in a pool of 10,000 claimed pods, one check of 100,000
// sandboxes for idleness, and the writes of one sandbox's life, which the API server
// counts. bench runs it.
//
// It measures nothing itself. The reconcilers' own tests can set up such fleets and lives,
// and check bounds on the bytes and writes. This package runs their benchmarks and the test
// of a life, as programs that `make bench` builds, and reads what they print. The tests have
// no bounds on the times, which are only rows here.
package control
