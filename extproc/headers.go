package extproc

// Field is a header that may come at most once.
type Field struct {
	// Value is that of the first occurrence.
	Value string
	// Count is how often the header came.
	Count int
}

// Headers are the request headers that this package reads.
type Headers struct {
	Authority, Path           Field
	E2BID, E2BPort            Field // E2b-Sandbox-Id, E2b-Sandbox-Port
	ID, Port                  Field // X-Sandbox-Id, X-Sandbox-Port
	Env, Pool, APIKey         Field // X-Sandbox-Env, X-Sandbox-Pool, X-Sandbox-Api-Key
	Namespace                 Field // X-Sandbox-Namespace, which is refused
	TrafficToken              Field // E2b-Traffic-Access-Token
	EnvdToken                 Field // X-Access-Token
	Upgrade                   Field // left by Envoy if it passes it
	UserAgent, Accept         Field
	FetchMode, XMLHTTPRequest Field // Sec-Fetch-Mode, X-Requested-With
	Origin, FetchSite         Field // FetchSite is Sec-Fetch-Site
	ServiceWorker             Field // sent by a browser that fetches the script of one
	// Cookie has a value only if a cookie of a port may be in it; all are counted.
	Cookie Field
}

// ForwardedHeaders returns the headers that Envoy must forward to this server
// (forward_rules.allowed_headers); it needs no other.
func ForwardedHeaders() []string {
	return []string{
		":authority", ":path",
		"e2b-sandbox-id", "e2b-sandbox-port", "x-sandbox-id", "x-sandbox-port",
		"x-sandbox-env", "x-sandbox-pool", "x-sandbox-namespace", HeaderAPIKey, "e2b-traffic-access-token", "x-access-token",
		"upgrade", "user-agent", "accept", "sec-fetch-mode", "x-requested-with",
		"origin", "sec-fetch-site", "service-worker", headerCookie,
	}
}

// HeaderAPIKey carries the API key of a first request. Envoy's route must
// remove it (request_headers_to_remove), since code in a sandbox must never see
// a key; this server cannot, because mutation_rules do not allow it.
const HeaderAPIKey = "x-sandbox-api-key"

// field returns where the named header goes, nil for one that is not read.
func (h *Headers) field(name string) *Field {
	switch name {
	case ":authority":
		return &h.Authority
	case ":path":
		return &h.Path
	case "e2b-sandbox-id":
		return &h.E2BID
	case "e2b-sandbox-port":
		return &h.E2BPort
	case "x-sandbox-id":
		return &h.ID
	case "x-sandbox-port":
		return &h.Port
	case "x-sandbox-env":
		return &h.Env
	case "x-sandbox-pool":
		return &h.Pool
	case "x-sandbox-namespace":
		return &h.Namespace
	case HeaderAPIKey:
		return &h.APIKey
	case "e2b-traffic-access-token":
		return &h.TrafficToken
	case "x-access-token":
		return &h.EnvdToken
	case "upgrade":
		return &h.Upgrade
	case "user-agent":
		return &h.UserAgent
	case "accept":
		return &h.Accept
	case "sec-fetch-mode":
		return &h.FetchMode
	case "x-requested-with":
		return &h.XMLHTTPRequest
	case "origin":
		return &h.Origin
	case "sec-fetch-site":
		return &h.FetchSite
	case "service-worker":
		return &h.ServiceWorker
	case headerCookie:
		return &h.Cookie
	}
	return nil
}
