// Package e2b is E2B's REST API as its SDKs call it: sandboxes are created,
// listed, extended and killed by API key.
//
// It is the wire contract (docs/design/e2b-contract.md chapters 1 and 3) and
// nothing else: it holds no sandbox and no lock, talks to no API server and to
// no pod. What it needs of the gateway it runs in stands in [Sandboxes],
// [Templates], [Keys] and [Tokens]; package gateway implements them. Envoy sends
// it what is not addressed to a sandbox, over a unix socket.
//
// openapi.yaml is the truth about paths, parameters and shapes: package api is
// generated from it, the router is filled from it, requests are validated against
// it, and operations with its tag "unsupported" are answered from it with 501.
//
// # A request
//
// CORS headers → route (404, 405) → API key (401, 429, 503) → rate limit (429) →
// body (413, 408) → validation (400) → handler. Nothing is read of a body before
// its key is known. Every answer but 2xx has the body {"code", "message"}; what
// nobody foresaw, panics included, is a 500 with an ID that stands in the log too.
// Each request is counted by route template and status; each that may change
// something leaves a line in the log.
//
// # Create
//
// A create waits at most [createDeadline] for a pod. It ends in one of:
//   - 201: the sandbox runs, its end is as far away as was asked for;
//   - 400, 404, 429, 503, 504: nothing was made;
//   - 500 with "Should-Retry: false": something may have been made and is being
//     ended; no SDK repeats this by itself;
//   - no answer: the client left; [Sandboxes].Create ends what it made.
//
// With an Idempotency-Key a create is, per team and key, running (others with the
// same key wait for it), done (its answer is kept for a day) or forgotten (it
// failed, and the next request tries anew). If the client of a running create
// leaves, one of those that wait makes the sandbox instead. Answers are kept in
// the memory of this process: behind several gateways a repeated create finds its
// answer only on the gateway that made it, and a restart forgets them.
package e2b
