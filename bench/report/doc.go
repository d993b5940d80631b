// Package report turns results into text for people: a table, a comparison, plots, and the
// generated pages docs/performance.md and docs/scale.md. It measures nothing; every figure
// in its output is in a result, or is computed from a result's figures by a rule that the
// page states.
package report
