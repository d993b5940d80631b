package limits

// Room is what one client may take from all others of this gateway: places to wait, and open
// requests. It is extproc.Room.
type Room struct {
	*Waiting
	*OpenRequests
}

// WaitKeyed is Wait for a call of the REST API, which has shown a key.
func (r Room) WaitKeyed(namespace, id string) (leave func(), err error) {
	return r.Wait(namespace, id, true)
}
