// Package api is what oapi-codegen makes of openapi.yaml: the types of E2B's REST
// API, the interface of its handlers, and the reading of path and query parameters.
//
// It validates nothing (package restapi does, against the same document) and has no
// line of its own. Only package restapi imports it. `make generate` writes it.
package api
