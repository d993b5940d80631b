// Package restapi is E2B's REST API as its SDKs call it: sandboxes are created,
// listed, extended and killed by API key. Fill in [Options] with what stands behind its
// interfaces, make a [Server] with NewServer, and serve HTTP with it.
//
// It is the wire contract (docs/design/e2b-contract.md chapters 1 and 3) and
// nothing else: it talks to no API server and to no pod. It keeps no sandboxes; in memory
// it has only the answers of creates with an Idempotency-Key, and rate limiters.
// What it needs of its gateway is behind the interfaces [Sandboxes],
// [Templates], [Builds], [Keys] and [Tokens]; package gateway/restapi/backend implements them. Envoy
// sends it what is not addressed to a sandbox, over a unix socket.
//
// openapi.yaml is the truth about paths, parameters and shapes: package api is
// generated from it, the router is filled from it, requests are validated against
// it, and operations with its tag "unsupported" are answered from it with 501.
package restapi
