package checkpoint

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Room is how many bytes a store has, and how many of them are free.
type Room struct{ Free, All int64 }

// Room returns the room of the folder's file system, or of a quota that it shows as its size.
func (f *Folder) Room(ctx context.Context) (Room, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return bounded(ctx, f.calls, f.room, nil)
}

func (f *Folder) room() (Room, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return Room{}, err
	}
	defer func() { _ = dir.Close() }() // it was only looked at
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil {
		return Room{}, fmt.Errorf("look for room in the folder of checkpoints: %w", err)
	}
	block := s.Frsize // what a FUSE file system counts in; Bsize is then only its best size of a write
	if block == 0 {
		block = s.Bsize
	}
	return Room{Free: int64(s.Bavail) * block, All: int64(s.Blocks) * block}, nil //nolint:gosec // sizes of a file system
}
