package activation

import (
	"errors"
)

// Verdict is what follows a try of a Ready that failed. The zero value is what an error
// without a verdict means.
type Verdict int

// Verdicts.
const (
	// TryLater: Ready is called again after a delay.
	TryLater Verdict = iota
	// TryNow: a part is done, and Ready is called again at once.
	TryNow
	// FailRequest: no further try can help this request, which fails; the sandbox stays as it
	// is.
	FailRequest
	// EndSandbox: no further try can help, at any gateway. The Ready itself, or the caller of
	// Create, ends the sandbox.
	EndSandbox
)

// With returns err with a verdict, which replaces the one that err has; nil if err is nil.
// What else err is stays as it was.
func (v Verdict) With(err error) error {
	if err == nil {
		return nil
	}
	return &judged{err, v}
}

// VerdictOf returns the verdict of a Ready's error.
func VerdictOf(err error) Verdict {
	if j := (*judged)(nil); errors.As(err, &j) {
		return j.verdict
	}
	return TryLater
}

// judged is an error with a verdict. The outermost one of an error counts.
type judged struct {
	error
	verdict Verdict
}

func (j *judged) Unwrap() error { return j.error }
