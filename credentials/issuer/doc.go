// Package issuer keeps the certificates by which controller, gateways and egress processes
// know each other on a cluster, as Secrets of the system namespace: an authority, and one
// certificate for each kind. `sandlane control-certs` calls it, as the Helm
// chart's Job and CronJob. It serves nothing; package controlplane reads the files
// that the Secrets are mounted as, and reads them anew when they change.
//
// # What Ensure does
//
//	authority missing, no certificates    made, then all certificates
//	authority missing, certificates there an error: a new authority would cut every
//	                                      running pair. Restore it, or delete all
//	certificate missing                   made
//	less than a third of its life left,   made anew; the key as well
//	other names, or not the authority's
//	otherwise                             left alone
//
// The authority is kept as it is: while pods run that were told of the old one, one
// made anew would have the two sides refuse each other. Two Ensures at a time write
// each Secret once: a create that finds one, or an update of another version, is
// read again.
package issuer
