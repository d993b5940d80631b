package daemon

// MetricsAddress translates a --metrics-address for the part that serves it, in which off
// means nowhere. Users may write that as "" or as "0".
func MetricsAddress(address, off string) string {
	if address == "" || address == "0" {
		return off
	}
	return address
}
