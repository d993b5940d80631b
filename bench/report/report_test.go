package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandlane/sandlane/test/result"
)

func sample() *result.Result {
	r := &result.Result{Started: time.Unix(1700000000, 0).UTC(), Plan: "all"}
	ten := func(x float64) (out []float64) {
		for i := range 10 {
			out = append(out, x*(1+float64(i)/100))
		}
		return out
	}
	for _, side := range []string{"plain", "do-nothing", "sandlane"} {
		r.Add("dataplane/hit/"+side+"/rps", "requests/s", "more", ten(10_000)...)
	}
	r.Add("dataplane/hit/ratio/vs-do-nothing", "ratio", "more", ten(0.9)...).Budget = &result.Budget{More: true, Value: 0.95}
	r.Add("dataplane/one/ratio/vs-do-nothing", "ratio", "more", 1.5)
	for name, value := range map[string]float64{
		"idle/wire/sandlane/pod": 600, "idle/wire/sandlane/sandbox": 400,
		"claims/burst-32/bare/rate": 700, "claims/burst-300/bare/rate": 600, "idle/index/informer/pod": 5000, "control/pod-event-10000/sandlane/time": 0.5,
		"dataplane/fleet-1000/sandlane/envoy-cpu": 100, "dataplane/fleet-1000/sandlane/server-cpu": 50,
		"dataplane/fleet-10000/sandlane/envoy-cpu": 900, "dataplane/fleet-10000/sandlane/server-cpu": 100,
		"dataplane/hit/sandlane/server-memory": 50, "socket/gateway-100000/sandlane/memory-without-routes": 150, "socket/gateway-100000/sandlane/memory": 200,
		"dataplane/in-use-10000/sandlane/cpu": 10, "dataplane/in-use-10000/envoy/cpu": 30, "claims/first-1-gateways-1/sandlane/latency": 4000,
	} {
		r.Add(name, "x", "less", value)
	}
	r.SetHeadline("dataplane/hit/ratio/vs-do-nothing", "")
	return r
}

// A budget that does not hold, or that is not decided, is named with what other
// rows say, or as not explained; one that holds is not, and one without a row is
// shown as not measured.
func TestBudgets(t *testing.T) {
	r := &result.Result{}
	r.Add("claims/first-32-gateways-1/ratio/vs-bare", "ratio", "more", 0.5)
	r.Add("claims/first-300-gateways-1/ratio/vs-bare", "ratio", "more", 0.9)
	r.Add("claims/warm/ratio/p50-vs-bare", "ratio", "less", 1.0, 1.1, 1.2, 1.29, 1.4, 1.5)
	r.Add("claims/warm/sandlane/latency", "µs", "less", 9000)
	r.Add("claims/warm/bare/latency", "µs", "less", 7000)
	r.Add("dataplane/touch-10000/ratio/vs-do-nothing", "ratio", "more", 0.5)
	r.Add("dataplane/hit/ratio/vs-do-nothing", "ratio", "more", 0.9)
	for row, value := range map[string]float64{
		"sandlane/envoy-cpu": 300, "do-nothing/envoy-cpu": 320, "sandlane/rps": 3000, "do-nothing/rps": 2500, "sandlane/server-cpu": 60, "do-nothing/server-cpu": 90,
	} {
		r.Add("dataplane/hit/"+row, "x", "less", value)
	}
	r.Add("dataplane/in-use-10000/sandlane/cpu", "ms", "less", 10)
	r.Add("dataplane/in-use-10000/envoy/cpu", "ms", "less", 30)
	r.Add("dataplane/in-use-10000/both/time", "ms", "less", 60)
	r.Add("claims/first-32-gateways-3/ratio/vs-bare", "ratio", "more", 0.4)
	for row, value := range map[string]float64{
		"sandlane/cpu-kube-apiserver": 6, "sandlane/cpu-gateway": 2, "bare/cpu-kube-apiserver": 4,
	} {
		r.Add("claims/first-32-gateways-3/"+row, "x", "less", value)
	}
	r.Add("routes/100000/sandlane/hot-1", "ns", "less", 150)
	r.Add("routes/100000/golang-lru/hot-1", "ns", "less", 140)
	r.Add("routes/100000/map-mutex/hot-1", "ns", "less", 120)
	for side, cpu := range map[string]map[string]float64{"bare": {"client": 1, "etcd": 7}, "sandlane": {"etcd": 8, "envoy": 2, "gateway": 6}} {
		for program, took := range cpu {
			r.Add("claims/first-32-gateways-1/"+side+"/cpu-"+program, "ms a claim", "less", took)
		}
	}
	Judge(r)
	text := budgetList(r)
	for _, want := range []string{
		"- `claims/warm/ratio/p50-vs-bare`, ≤ 1.3: undecided 1.245 (1.000–1.500); sandlane/latency 9000, bare/latency 7000 µs [4]\n",
		"- `dataplane/touch-10000/ratio/vs-do-nothing`, ≥ 0.9: missed 0.500; not explained\n",
		"; sandlane/cpu 16.00, bare/cpu 8.000 ms a claim [5]\n",
		"; sandlane/cpu 10.00, envoy/cpu 30.00 ms [2]\n",
		"golang-lru/hot-1 140.0, map-mutex/hot-1 120.0 ns [3]\n",
		"\n1. ",
		"\nThe other 2 hold; ",
		"- `claims/release/sandlane/p99`, ≤ 50: not measured\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "not measured"); n != len(budgets)-9 {
		t.Errorf("%d budgets are not measured, want %d", n, len(budgets)-9)
	}
}

// What others measured stands beside our nearest row, or beside none.
func TestPublished(t *testing.T) {
	text := published(sample())
	for _, p := range peers {
		if !strings.Contains(text, p.source) || !strings.Contains(text, p.differs) {
			t.Errorf("%s lacks its source or what differs", p.what)
		}
		if _, err := time.Parse(time.DateOnly, p.date); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(text, "4000 x (`claims/first-1-gateways-1/sandlane/latency`)") || !strings.Contains(text, "| none |") {
		t.Errorf("ours are not there:\n%s", text)
	}
}

// A row with a verdict shows its interval; one without shows none.
func TestMarkdown(t *testing.T) {
	text := Markdown(sample(), nil)
	for _, want := range []string{
		"| dataplane/hit/ratio/vs-do-nothing | 0.941 | 0.909 – 0.972 | 10 | ratio | ≥ 0.95 undecided (its median missed) |",
		"| dataplane/one/ratio/vs-do-nothing | 1.500 |  | 1 | ratio |  |",
		"**94.1 % of the requests/s of a do-nothing ext_proc server in the same Envoy (90.9–97.2)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

func TestComparisonWithholdsVerdicts(t *testing.T) {
	a, b := sample(), sample()
	for i := range b.Rows[0].Samples {
		b.Rows[0].Samples[i] /= 2
	}
	b.Row("dataplane/one/ratio/vs-do-nothing").Samples[0] = 0.1
	text := Comparison(a, b)
	for _, want := range []string{
		"| dataplane/hit/plain/rps | 10450 | 5225 | 0.500 | 0.000 | worse | requests/s |",
		"| dataplane/hit/sandlane/rps | 10450 | 10450 | 1.000 | 1.000 | ~ | requests/s |",
		"| dataplane/one/ratio/vs-do-nothing | 1.500 | 0.100 | 0.067 | n=1+1 | - | ratio |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the comparison lacks %q:\n%s", want, text)
		}
	}
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := Pages(sample(), nil, dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"performance.md":      "](performance-rps.svg)",
		"performance-rps.svg": "<svg",
		// 100,000 sandboxes of half an hour: 55.56 a second of 16 writes, and 20 more; 3,333
		// active for each gateway, so a request costs as with 10,000, and a third of a look;
		// 50 MB, 100 more for what is known, and a tenth of 50 for routes; 9 events of pods and 7 of Sandboxes each.
		"scale.md": "| 100000 | 55.56 | 908.9 | 151.5 % | 3 | 3.347 | 155.0 MB | 455.6 kB |",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q:\n%s", file, want, text)
		}
	}
}

// The page begins with a sentence for each figure that was measured, then one picture, and
// says what do-nothing is; scale.md has what controllers need.
func TestOpening(t *testing.T) {
	r := sample()
	r.Add("fastpath/hit/ratio/vs-plain", "ratio", "more", 0.93)
	dir := t.TempDir()
	if err := Pages(r, nil, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.TrimPrefix(string(text), "# Performance\n\n"+generated)
	for _, want := range []string{"Sandlane serves **94.1 %** (90.9–97.2) of", "\nWith the module that answers inside Envoy it serves **93.0 %**", "\nA first request, ", " after **4000 x**.\n\n![", "\n\n**Do-nothing** is "} {
		_, rest, found := strings.Cut(page, want)
		if !found {
			t.Fatalf("%q is not there, or not in its place:\n%s", want, text)
		}
		page = rest
	}
	if strings.Contains(page, "![") {
		t.Error("the page has a second picture")
	}
	text, err = os.ReadFile(filepath.Join(dir, "scale.md"))
	if err != nil || !strings.Contains(string(text), "500.0 MB for 100,000") || !strings.Contains(string(text), "in a pool of 10,000: 0.500 x") {
		t.Errorf("%v; the page lacks what controllers cost:\n%s", err, text)
	}
}

// The page has a line for each side, with one connection and with many, and none for
// what was not measured.
func TestFastPathTable(t *testing.T) {
	r := &result.Result{}
	if text := fastPath(r); text != "" {
		t.Errorf("without rows: %q", text)
	}
	for side, rate := range map[string]float64{"plain": 30_000, "do-nothing": 12_000, "sandlane": 12_500, "sandlane-fast": 28_000} {
		r.Add("fastpath/hit/"+side+"/rps", "requests/s", "more", rate)
		r.Add("fastpath/hit/"+side+"/envoy-cpu", "µs/request", "less", 30)
	}
	r.Add("fastpath/one/plain/rps", "requests/s", "more", 5000)
	text := fastPath(r)
	for _, want := range []string{
		"| plain Envoy, 32 connections | 30000 |  |  | 30.00 |  |", "| Sandlane, Envoy answers, 32 connections | 28000 |", "| plain Envoy, one connection | 5000 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n| "); n != 6 { // head and five sides
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// The page has a line for each row of the run on a node, beside the row of one without,
// and no section without such a run.
func TestOnNode(t *testing.T) {
	if text := onNode(sample(), nil); text != "" {
		t.Errorf("without a run: %q", text)
	}
	node := &result.Result{Started: time.Unix(1700000000, 0).UTC(), Version: "v", Machine: result.Machine{CPU: "a processor", Cores: 2, LoadAverage: "9 9 9"}}
	node.Add(result.NodeClaim, "ms", "less", 11, 12, 13, 14, 15, 16, 17)
	node.Add(result.NodeCreatedToIdle, "ms", "less", 2000)
	text := onNode(sample(), node)
	for _, want := range []string{
		"a processor, 2 cores, 2023-11-14 (not quiet, so less sure), v.",
		"| 14.00 ms (11.00–17.00) | 17.00 | 7 | 4000 x (`claims/first-1-gateways-1/sandlane/latency`) |",
		"| 2000 ms | 2000 | 1 | – |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the section lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n| "); n != 3 { // the head and two rows
		t.Errorf("%d lines:\n%s", n, text)
	}
	dir := t.TempDir()
	if err := Pages(sample(), node, dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil || !strings.Contains(string(page), text) {
		t.Errorf("the page lacks the section: %v", err)
	}
}

func TestPagesSayWhatIsMissing(t *testing.T) {
	r := sample()
	r.Row("idle/wire/sandlane/pod").Samples = nil
	if err := Pages(r, nil, t.TempDir()); err == nil || !strings.Contains(err.Error(), "idle/wire/sandlane/pod") {
		t.Errorf("%v", err)
	}
}
