// Package processes finds the gateways and controllers of an installation and reads what
// they say of themselves: metrics and logs. In a cluster, [InCluster] asks the API server
// for both (the subresources pods/proxy and pods/log), so that the user's own rights decide;
// the processes of `sandlane up` are found by package local.
//
// It changes nothing and keeps no connection open.
package processes
