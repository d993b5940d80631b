// Package processpb is the generated form of sandboxd/proto/process: messages, client
// and server of the process service of E2B's envd protocol.
//
// It holds no code of its own; package sandboxd/process serves it and tests call
// it. hack/proto/generate.sh regenerates it.
package processpb
