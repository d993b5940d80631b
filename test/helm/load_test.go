package helm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// answers are what clients of one sandbox got while something happened.
type answers struct {
	ok        int
	failed    map[string]int // by status, 000 for none
	processes map[string]int // that answered
}

func (a answers) String() string {
	return fmt.Sprintf("%d answers, failed %v, %d processes", a.ok, a.failed, len(a.processes))
}

// askForever sends requests until the file exists, each on a new connection, and prints each
// answer and a line with its status.
const askForever = `while [ ! -e "$1" ]; do
	curl -s -m 15 -H "X-Sandbox-Id: $2" -H 'X-Sandbox-Port: 8000' -w '\n=%{http_code}\n' "$0"
	sleep 0.02
done`

// during makes three clients send requests to a sandbox while something happens.
func (c *cluster) during(t *testing.T, id string, happens func()) answers {
	t.Helper()
	stop := filepath.Join(c.tempDir(t), "stop")
	url := c.gateway(t) + "/"
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	outs, done := make([]bytes.Buffer, 3), make(chan error)
	for i := range outs {
		cmd := c.Command(ctx, "sh", "-c", askForever, url, stop, id)
		cmd.Stdout = &outs[i]
		go func() { done <- cmd.Run() }()
	}
	func() {
		defer func() {
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Error(err)
			}
			for range outs {
				if err := <-done; err != nil {
					t.Errorf("a client: %v", err)
				}
			}
		}()
		happens()
	}()
	a := answers{failed: map[string]int{}, processes: map[string]int{}}
	for i := range outs {
		for answer := range strings.SplitSeq(strings.TrimSuffix(outs[i].String(), "\n"), "\n=") {
			// The lines after a status belong to the next answer.
			status, _, _ := strings.Cut(answer, "\n")
			switch {
			case len(status) != 3: // the body of the first
			case status == "200":
				a.ok++
			default:
				a.failed[status]++
			}
		}
		for part := range strings.SplitSeq(outs[i].String(), `"process":"`) {
			if id, _, ok := strings.Cut(part, `"`); ok && len(id) == 26 {
				a.processes[id]++
			}
		}
	}
	fmt.Printf("      %s: %s\n", t.Name(), a)
	c.asked += a.ok
	for _, n := range a.failed {
		c.asked, c.lost = c.asked+n, c.lost+n
	}
	if a.ok == 0 {
		t.Errorf("no request was answered: %s", a)
	}
	return a
}

// sameProcess checks that all answers came from the process that answered before: any other
// process belongs to another sandbox.
func (a answers) sameProcess(t *testing.T, before string) {
	t.Helper()
	if ids := slices.Collect(maps.Keys(a.processes)); len(ids) != 1 || ids[0] != before {
		t.Errorf("processes %v have answered, want %s alone", ids, before)
	}
}

func (a answers) noneFailed(t *testing.T) {
	t.Helper()
	if len(a.failed) > 0 {
		t.Errorf("%s; want none failed", a)
	}
}
