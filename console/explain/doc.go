// Package explain says what is wrong with a sandbox or with a whole installation, and what
// to do about it. [Sandbox] and [Check] are pure functions from objects to findings; a
// [Reader] reads the objects with the rights of its caller.
//
// It writes nothing, and reads no Secret. cmd/sandlane prints its text, and the console
// shows the same.
package explain
