// Package report turns results into what people read: a table, a comparison,
// plots, and the generated pages docs/performance.md and docs/scale.md. It
// measures nothing; every figure in its output is in a result, or computed from
// figures of one in the open.
package report
