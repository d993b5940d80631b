// Package podstate reads the state of a pod from its object: what is wrong with it
// (PodStatusDetail), whether its containers run the images that they should, whether
// one was started again since it was put on record, and what is to be kept of a pod
// whose claim has ended (CaptureSandboxStopRecord).
//
// Everything but BuildPodStatusDetailWithEvents, which asks the API server for the
// pod's Events, is pure: a function of the pod that it is given. It decides nothing
// and writes nothing; reconcilers/sandboxpool, reconcilers/sandbox and
// reconcilers/idletimeout draw the conclusions.
package podstate
