// Package builds makes templates from images for one gateway: New makes a Builds, which
// implements restapi.Builds, and runs each build that was started at this gateway.
//
// A build's object is a TemplateBuild, its bytes are in the template registry (package store),
// and its steps run in a sandbox of a pool that the controller makes for it. This package makes
// no pool. docs/design/templates.md has the states and what happens when a step fails.
package builds
