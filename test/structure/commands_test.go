package structure

import (
	"strings"
	"testing"

	"github.com/sandlane/sandlane/test/pages"
)

// Each block of a users' page names its language, and each block of commands what runs it,
// or why nothing does.
func TestCommandsSayWhereTheyRun(t *testing.T) {
	run := 0
	for _, page := range pages.OfUsers(t) {
		for _, b := range pages.Blocks(t, page) {
			switch b.Language {
			case "":
				t.Errorf("%s:%d: the block names no language", page, b.Line)
			case "sh", "python":
				if reason, skipped := strings.CutPrefix(b.Where, pages.NotRun); !skipped {
					run++
				} else if len(strings.Fields(reason)) > 2 {
					continue
				}
				if b.Where != pages.Up && b.Where != pages.Node {
					t.Errorf("%s:%d: the block is %q, which is neither %q, %q nor %q with a reason", page, b.Line, b.Where, pages.Up, pages.Node, pages.NotRun)
				}
			}
		}
	}
	if run < 12 {
		t.Errorf("only %d blocks are run: the pattern has rotted", run)
	}
}
