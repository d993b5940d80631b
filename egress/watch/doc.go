// Package watch tells the egress process's table of claims what the API server says: which
// pods with egress ByName there are, whose they are and what their sandboxes may connect to;
// and opens the secrets that rules name (Reveal).
// Make a [Watch], let the lease call Join each time it was written, and Stop at the end.
//
// It decides nothing about connections (package egress/claims) nor names (egress/names), and
// writes nothing. `sandlane egress` runs it.
package watch
