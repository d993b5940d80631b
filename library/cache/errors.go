package cache

import "errors"

var (
	// ErrStopped means that the Cache or its manager is stopped.
	ErrStopped = errors.New("the cache is stopped")
	// ErrWaitTaskConflict means that a task holds the object for another action.
	ErrWaitTaskConflict = errors.New("another task waits for another action on the object")
	// ErrWaitTaskUsed means that the task's Wait or Release was called before.
	ErrWaitTaskUsed = errors.New("the task was used before")
	// ErrGone means that the object was deleted. A later object of the same name does not
	// count.
	ErrGone = errors.New("the object was deleted")
	// ErrFailed means that the object cannot reach the state any more that the task waits for.
	ErrFailed = errors.New("the object cannot reach that state any more")
	// ErrNamespaceNeeded means that the options of a read name no namespace.
	ErrNamespaceNeeded = errors.New("a namespace is needed")
)
