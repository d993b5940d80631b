package cache

import "errors"

var (
	// ErrStopped means that the Cache is stopped, or its manager is.
	ErrStopped = errors.New("the cache is stopped")
	// ErrWaitTaskConflict means that another action on the object is waited for.
	ErrWaitTaskConflict = errors.New("another action on it is waited for")
	// ErrWaitTaskUsed means that the task was waited for or released before.
	ErrWaitTaskUsed = errors.New("the task was used before")
	// ErrGone means that the object was deleted. One of the same name is another.
	ErrGone = errors.New("it is gone")
	// ErrFailed means that the object cannot come to what is waited for any more.
	ErrFailed = errors.New("it cannot come to that any more")
	// ErrNamespaceNeeded means that the options of a read name no namespace.
	ErrNamespaceNeeded = errors.New("a namespace is needed")
)
