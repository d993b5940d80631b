// Package filesystempb is the generated form of sandboxd/proto/filesystem: messages, client
// and server of the filesystem service of E2B's envd protocol.
//
// It holds no code of its own; package sandboxd/filesystem serves it and tests call
// it. hack/proto/generate.sh regenerates it.
package filesystempb
