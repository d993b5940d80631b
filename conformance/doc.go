// Package conformance asks a backend that speaks E2B's API what E2B's SDKs ask, and says of
// each case whether it works, is refused, is wrong, or was not tried. `sandlane conformance`
// and test/e2b call Run.
//
// The cases are data: a file of cases/ is one feature, and each case has the source of what
// it expects. A case without one is unproven: only this project says so, and a backend that
// differs is not called wrong. The cases have been run against this project's own gateway,
// never against E2B itself.
package conformance
