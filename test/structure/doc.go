// Package structure has no code: its tests hold the shape of the repository.
// They parse every Go file of the module and check that each package says what
// it is, imports only what its row in the table of the architecture allows, keeps
// its files short, judges patches in one place, and does not sleep in tests; and that what
// pages lead to is there.
//
// No package imports it.
package structure
