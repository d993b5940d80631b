package fastpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Close unlocks the folder, so that another process may settle it. The mappings stay until
// the process ends, since a late call may still write.
func (t *Table) Close() error {
	t.Distrust(true)
	return t.control.close()
}

// ErrNoTable says that no process has described a table in the folder's control file,
// or that the file was removed: what Envoy may still have mapped is not known.
var ErrNoTable = errors.New("the folder has no route table")

// SettleFolder is for a gateway without a table. When it returns nil, no Envoy answers from
// a table that an earlier process left in the folder, whatever its layout. Without such a
// table it returns ErrNoTable at once. If it cannot open the table, it waits until the trust
// in it has ended, and returns nil too, unless ctx ends first.
func SettleFolder(ctx context.Context, folder string) error {
	c, err := openControl(folder, false)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoTable
	}
	if err != nil {
		return WaitTrust(ctx)
	}
	defer c.close()
	if c.load(offMagic) == 0 {
		return ErrNoTable
	}
	c.distrust()
	if err := c.waitWorkers(ctx); err != nil {
		return fmt.Errorf("settling the fast path: %w", err)
	}
	return nil
}

// WaitTrust waits as long as trust can last: afterwards no Envoy answers from a table whose
// heartbeat had stopped before the call. It returns the error of ctx if that ends first.
func WaitTrust(ctx context.Context) error {
	t := time.NewTimer(longestTrust)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
