// Package routing has the words of the request path: what is known of a sandbox ([Answer],
// [State]), what asks for a pod for it ([Request]), which pools may give one ([Member]), whose
// API key asks ([KeyOwner]), and why there is none (the errors). Packages extproc, credentials
// and those of the gateway share them, so that an answer crosses from one to the next as it is.
// It holds values alone and imports nothing that acts.
package routing
