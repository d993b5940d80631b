package load

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// script makes wrk name the hosts in turn and print its results in JSON. It makes all
// requests before the first is sent.
const script = `
local common, rare, every, n, c, r = {}, {}, %d, 0, 0, 0
init = function(args)
  for line in io.lines(%q) do
    local kind, host = line:sub(1, 1), line:sub(2)
    local request = wrk.format("GET", "/", {["Host"] = host})
    if kind == "r" then rare[#rare + 1] = request else common[#common + 1] = request end
  end
  r = %d %% math.max(#rare, 1)
end
request = function()
  n = n + 1
  if every > 0 and n %% every == 0 then
    r = r %% #rare + 1
    return rare[r]
  end
  c = c %% #common + 1
  return common[c]
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\nJSON {"requests":%%d,"micros":%%d,"errors":%%d,"p50":%%d,"p99":%%d,"p999":%%d}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
`

// FindWrk returns the path of wrk: $WRK_BIN, or the one on PATH; empty if there
// is none.
func FindWrk() string {
	if path := os.Getenv("WRK_BIN"); path != "" {
		return path
	}
	path, err := exec.LookPath("wrk")
	if err != nil {
		return ""
	}
	return path
}

// wrkGrace is how much longer than its time wrk may run.
const wrkGrace = 30 * time.Second

func runWrk(ctx context.Context, wrk string, t Target, d time.Duration) (Report, error) {
	var r Report
	dir, err := os.MkdirTemp("", "wrk")
	if err != nil {
		return r, fmt.Errorf("run wrk: %w", err)
	}
	defer os.RemoveAll(dir)
	hosts, lua := dir+"/hosts", dir+"/hosts.lua"
	every := t.RareEvery
	if len(t.Rare) == 0 {
		every = 0
	}
	for path, text := range map[string]string{hosts: hostLines(t), lua: fmt.Sprintf(script, every, hosts, t.RareFrom)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return r, fmt.Errorf("run wrk: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d+wrkGrace)
	defer cancel()
	// wrk takes only whole seconds; the result has the real duration.
	seconds := max(int(d.Round(time.Second)/time.Second), 1)
	cmd := exec.CommandContext(ctx, wrk, "-t", "1", "-c", strconv.Itoa(t.Connections), "-d", strconv.Itoa(seconds)+"s",
		"--timeout", "30s", "-s", lua, "http://"+t.Address+"/")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("run wrk: %w\n%s", err, out)
	}
	return parseWrk(string(out))
}

func hostLines(t Target) string {
	var b strings.Builder
	for _, h := range t.Hosts {
		b.WriteString("c" + h + "\n")
	}
	for _, h := range t.Rare {
		b.WriteString("r" + h + "\n")
	}
	return b.String()
}

// parseWrk reads the line that the script wrote.
func parseWrk(out string) (Report, error) {
	var seen struct{ Requests, Micros, Errors, P50, P99, P999 int64 }
	_, line, found := strings.Cut(out, "\nJSON ")
	if !found {
		return Report{}, fmt.Errorf("wrk says nothing of what it saw:\n%s", out)
	}
	line, _, _ = strings.Cut(line, "\n")
	if err := json.Unmarshal([]byte(line), &seen); err != nil {
		return Report{}, fmt.Errorf("wrk says %q: %w", line, err)
	}
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return Report{
		Requests: seen.Requests - min(seen.Errors, seen.Requests), Errors: seen.Errors, Took: micros(seen.Micros),
		P50: micros(seen.P50), P99: micros(seen.P99), P999: micros(seen.P999),
	}, nil
}
