// Package buildstep does what a step of a template's build needs inside the builder's pod and
// an image need not have a program for: Copy unpacks the files of a COPY step, AddUser adds a
// user. Package sandboxd calls both for its flags --unpack and --add-user, in a process of its
// own that the gateway starts by the process service.
//
// It has the rights of its process, root, and protects nothing from the archive's maker, who
// may run any command in the same container; it only leaves files outside of the destination
// alone.
package buildstep
