// Package docs runs the commands of the users' pages, README.md and docs/*.md, as a user
// pastes them: each page in a folder of its own, from top to bottom in one bash, on one
// stack (test/stack) in place of the one that the page starts. `make docs-test` runs it.
//
// A block of commands says on its first line where it runs (package pages). Those for a
// cluster are not run here: test/helm installs the chart and applies install.md's objects,
// and here their words are compared with the chart's values and each command's
// help.
package docs
