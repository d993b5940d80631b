package report

import "github.com/sandlane/sandlane/bench/result"

// Pages writes the generated pages of the documentation.
func Pages(*result.Result, string) error { return nil }
