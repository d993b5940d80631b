package network

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// listTries is how often the kernel is asked for a list that is whole.
const listTries = 20

// listed asks the kernel for a list again while other processes of this machine change what
// it lists, such as another node that starts or stops.
func listed[T any](list func() ([]T, error)) (all []T, err error) {
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
