// Package bundle writes what a support engineer asks for into one archive: objects with their
// conditions, Events, logs, metrics and what package explain says. [Write] reads with the
// rights of its caller.
//
// No secret is meant to be in it. Secrets and ConfigMaps are not read. Of objects, what users
// may have put a secret into is left out by its place (scrub.go): values of environment
// variables, commands, metadata and annotations of their own. In logs and messages, what
// looks like a key, a token or a password is replaced, which can miss one: logs of this
// project have none.
package bundle
