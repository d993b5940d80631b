// Package console is `sandlane console`: a page on loopback that shows an installation, ends,
// pauses and resumes sandboxes, and opens their ports. It acts with the user's own kubeconfig, so
// that Kubernetes' rights decide, and nothing of it is in the cluster. [New] makes a [Server];
// [Server.Serve] serves it on a listener. cmd/sandlane is its only caller; `sandlane up`
// serves it too.
//
// # Who may ask
//
// Other users of the machine, and other pages in the user's browser, reach a port on
// loopback as well. So every request but those for the page's own three files must carry a
// token in the header Authorization, which a page of another origin cannot send; the token
// is made at the start and printed in the address's fragment, which a browser sends to
// nobody. A Host header other than loopback's is refused, for names that are made to lead
// here (DNS rebinding). The page runs its own files alone (Content-Security-Policy), and
// shows what objects say as text, never as HTML.
//
// # What is read
//
// Nothing before the first request with the token. From then on the kinds of kinds.go are
// watched until the server ends; a kind that the user may not list is shown as such, and the
// rest works. Tables are sorted, searched and cut into pages here, so that a browser holds
// one page, however many sandboxes there are. While the API server is away, the page says
// since when, and shows what was known.
package console
