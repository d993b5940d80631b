// Package store is the template registry as builds see it: New makes a Store of its name, which
// keeps uploads, copies bases, and pushes what was built.
//
// All of a namespace is in one repository, which has its UID as the last part of its name; a
// call reads and writes in that of its namespace alone, and nothing is mounted from another. An
// upload is an image with one layer, so that a registry needs to know nothing of uploads.
// Contents are streamed: a layer is never in memory as a whole.
//
// It knows no TemplateBuild. Package gateway/builds calls it.
package store
