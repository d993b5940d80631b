// Package template is `sandlane template`: it builds templates of Dockerfiles, lists and deletes
// them, by the REST API of a gateway, for people without E2B's SDK. New makes the command.
//
// A Dockerfile means what Template.from_dockerfile of the SDK makes of it. What no build here can
// do is refused with its line, before anything is sent. The program sandlane calls it.
package template
