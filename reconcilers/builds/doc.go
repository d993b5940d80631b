// Package builds makes the pools of TemplateBuilds: Reconciler makes the pool of a builder when
// a gateway has copied the base, and the pool of the template when the gateway has pushed the
// image; it moves names and tags to a build whose first pod is Ready, and gives up what takes
// too long. Package gateway/builds has the states.
//
// It runs no step and speaks to no registry: a gateway does (package gateway/builds). What a
// pool's pods may do is decided here alone, from the build's images, commands and sizes.
package builds
