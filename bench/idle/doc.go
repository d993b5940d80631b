// Package idle measures what sandboxes cost while they are not used: the controller's poll
// for use, and the memory of the activity registry and of the index, beside the memory of
// client-go's informer. bench runs it, and docs/scale.md is computed from its rows.
//
// There is no cluster: the type fleet, in place of the API server's watch, gives the index
// its objects, with texts of real lengths. Sizes on the wire are those of the objects as the
// API server would encode them for a gateway's watch: Sandboxes as JSON, pods as protobuf.
package idle
