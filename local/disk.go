package local

import (
	"fmt"

	"github.com/sandlane/sandlane/local/binaries"
)

// leastFree is what etcd reserves for the next file of its log. It ends without a word of
// the disk in its last lines if it cannot have that.
const leastFree = 64 << 20

// room returns an error if the disk of the state folder is full.
func (s state) room() error {
	free, err := binaries.FreeBytes(s.dir)
	if err != nil {
		return fmt.Errorf("look for free disk space: %w", err)
	}
	if free < leastFree {
		return fmt.Errorf("the disk of %s is full: %d MB are free, and etcd needs %d MB", s.dir, free>>20, leastFree>>20)
	}
	return nil
}
