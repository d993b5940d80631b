// Package sdk runs E2B's SDKs, unmodified, against a backend: the programs of python/ and js/,
// each a list of cases, with the SDK in a version that is named. Versions with a lock file are
// pinned to the last dependency; others get the dependencies of the day.
package sdk
