package containerlog

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A log that is followed goes on in the file that takes its place once it is large: each line
// comes once, also those written as the container ends.
func TestFollowOverRotation(t *testing.T) {
	for name, endsAtOnce := range map[string]bool{"a container that goes on": false, "one that ends": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pod", "a_0.log")
			in, done, err := Start(file)
			if err != nil {
				t.Fatal(err)
			}
			say := func(line string) {
				if _, err := fmt.Fprintln(in, line); err != nil {
					t.Error(err)
				}
			}
			say("first")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a log that falls silent
			defer cancel()
			running := make(chan struct{})
			out, err := Read(ctx, file, Options{Follow: true}, running)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "first" {
				t.Fatalf("%q, %v", lines.Text(), lines.Err())
			}
			bulk := bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), 1024)
			go func() {
				for range 17 {
					_, _ = in.Write(bulk)
				}
				say("marker")
				if endsAtOnce {
					_ = in.Close()
					<-done
					close(running)
				}
			}()
			count := 0
			for lines.Scan() && lines.Text() != "marker" {
				count++
			}
			if lines.Text() != "marker" || count != 17*1024 {
				t.Errorf("%d lines of %d, then %q", count, 17*1024, lines.Text())
			}
			_ = in.Close()
			cancel()
			if lines.Scan() {
				t.Errorf("after the marker: %q", lines.Text())
			}
		})
	}
}
