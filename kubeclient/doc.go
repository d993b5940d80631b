// Package kubeclient helps our processes with an API server that may be away: RESTMapper
// knows the kinds without asking the server, so that a process can start without it;
// Patient lets watches resume within seconds after the server is back; RetryUntilAPIServerReady lets requests
// wait for a server that has just started; RewindGuard ends a process whose caches are ahead
// of a server that was restored; QuotaExceeded tells a used-up ResourceQuota from a missing
// right.
//
// It keeps no state. The gateway, the controller, `control-certs`, the local node, `up` and
// package library/cache use it.
package kubeclient
