package fastpath

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const tmpfsMagic = 0x01021994

// control is the control file: the head, which only this process writes, and the worker
// slots, which only Envoy writes.
type control struct {
	file  *os.File
	bytes []byte
	// created: the file was missing or empty, so that it says nothing about an earlier table.
	created bool
}

// openControl opens and locks the folder's control file; with create it makes the file if
// it is missing. Without create the error then wraps fs.ErrNotExist.
func openControl(folder string, create bool) (_ *control, err error) {
	flags := os.O_RDWR
	if create {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of the fast path: %w", err)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(folder, &fs); err != nil {
			return nil, fmt.Errorf("stat the folder of the fast path: %w", err)
		}
		if fs.Type != tmpfsMagic {
			return nil, fmt.Errorf("the fast path's folder %s is not on tmpfs", folder)
		}
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(filepath.Join(folder, "control"), flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the fast path's control file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := errors.Join(ownAlone(folder), ownAlone(f.Name())); err != nil {
		return nil, err
	}
	if err := lockByte(f); err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat the fast path's control file: %w", err)
	}
	b, err := mapWhole(f, controlSize)
	if err != nil {
		return nil, err
	}
	return &control{file: f, bytes: b, created: st.Size() == 0}, nil
}

// ownAlone returns an error unless this process's user alone may write the file or
// folder: Envoy sends requests to the addresses that the table says.
func ownAlone(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at the fast path's files: %w", err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("another user may write %s (owner %d, mode %o): the fast path's files must be this user's alone", path, st.Uid, st.Mode&0o777)
	}
	return nil
}

// lockByte locks the gateway's byte of the control file. Until this process unlocks it or
// ends, no other process can lock it.
func lockByte(f *os.File) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: lockGateway, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return fmt.Errorf("lock the fast path's control file, which another gateway may hold: %w", err)
	}
	return nil
}

// close unlocks and closes the file. It unlocks explicitly because the mapping stays, and a
// mapped file keeps its lock after it is closed.
func (c *control) close() error {
	lock := unix.Flock_t{Type: unix.F_UNLCK, Whence: 0, Start: lockGateway, Len: 1}
	err := unix.FcntlFlock(c.file.Fd(), unix.F_OFD_SETLK, &lock)
	if err := errors.Join(err, c.file.Close()); err != nil {
		return fmt.Errorf("unlock and close the fast path's control file: %w", err)
	}
	return nil
}

// mapWhole maps a file of that size. It first allocates an empty file, so that no later
// write to the mapping fails for lack of memory.
func mapWhole(f *os.File, size int) ([]byte, error) {
	st, err := f.Stat()
	if err == nil && st.Size() == 0 {
		err = unix.Fallocate(int(f.Fd()), 0, 0, int64(size))
	} else if err == nil && st.Size() != int64(size) {
		err = fmt.Errorf("its size is %d, not %d", st.Size(), size)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %s: %w", f.Name(), err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return b, nil
}

// mapFile opens and maps a file of the folder; create is added to the flags with which it is
// opened. It also returns the file's inode.
func mapFile(folder, name string, size int, create int) (b []byte, inode uint64, err error) {
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_RDWR|create, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the fast path's files: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, 0, fmt.Errorf("stat the fast path's files: %w", err)
	}
	b, err = mapWhole(f, size)
	return b, st.Ino, err
}

// u64 returns the word of a mapping at off, a multiple of 8.
func u64(b []byte, off int) *uint64 { return (*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

func u32(b []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off : off+4][0])) }

func (c *control) load(off int) uint64     { return atomic.LoadUint64(u64(c.bytes, off)) }
func (c *control) store(off int, v uint64) { atomic.StoreUint64(u64(c.bytes, off), v) }

// seq returns a worker's counter, which is odd during a reading: from the second look at
// the table to the answer and the mark of its use.
func (c *control) seq(worker int) uint64 { return c.load(offWorkers + worker*workerSize) }

// envoyLives reports whether a process holds the lock on Envoy's byte. If the lock cannot be
// read, it returns true.
func (c *control) envoyLives() bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: 0, Start: lockEnvoy, Len: 1}
	if err := unix.FcntlFlock(c.file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return true
	}
	return lock.Type != unix.F_UNLCK
}

// waitWorkers returns nil once every reading that was under way at the call is over, or the
// context's error. A reading is over when its worker's seq has changed, or when no Envoy
// holds the lock, since an Envoy holds it throughout its readings.
//
// # Why a fence holds
//
//	reader   seq odd; full fence; generation, trust and claim; word, entry (copied,
//	         checked by its keyed checksum, ID compared); answer; mark; seq even (release)
//	writer   to take a route out: word = 0 (sequentially consistent); then this wait
//
// Let a worker have seen, in a reading, a word that was removed. Its fence and the removal
// stand in the one order of sequentially consistent operations; had the removal come first,
// the reader would have seen 0. So the odd seq comes before the removal, and the writer's
// look after it sees that value, and waits until the answer was written, or a later one: the
// reading is over.
//
// Only the second look at the table is a reading. The first decides nothing but the route,
// and requests may wait between the two (http.max_requests_per_io_cycle).
func (c *control) waitWorkers(ctx context.Context) error {
	const spins = 100
	for w := range workers {
		s := c.seq(w)
		for try := 0; s&1 == 1 && c.seq(w) == s; try++ {
			switch {
			case try < spins:
				runtime.Gosched()
				continue
			case ctx.Err() != nil:
				return fmt.Errorf("waiting for a worker of Envoy: %w", context.Cause(ctx))
			case try%spins == 0 && !c.envoyLives():
				s = 0
			default:
				time.Sleep(50 * time.Microsecond)
			}
		}
	}
	return nil
}

// distrust sets trust to 0: every reading that begins from now on answers nothing.
func (c *control) distrust() {
	c.store(offTrustBoot, 0)
	c.store(offTrustWall, 0)
}

// writeHead writes the head for a new generation; the generation is written last.
func (c *control) writeHead(generation, key uint64, g geometry, inodes [2]uint64) {
	c.store(offGeneration, 0)
	c.store(offMagic, magic)
	c.store(offLayout, layout)
	c.store(offEntries, g.entries)
	c.store(offBuckets, g.buckets)
	c.store(offKey, key)
	c.store(offRoutesInode, inodes[0])
	c.store(offMarksInode, inodes[1])
	c.store(offGeneration, generation)
}

// headMatches reports whether the head describes a generation of this geometry.
func (c *control) headMatches(g geometry) bool {
	return c.load(offMagic) == magic && c.load(offLayout) == layout && c.load(offGeneration) != 0 &&
		c.load(offEntries) == g.entries && c.load(offBuckets) == g.buckets
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
