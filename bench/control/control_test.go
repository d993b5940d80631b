package control

import "testing"

// parse returns the numbers that the programs print, in the units of the rows.
func TestParse(t *testing.T) {
	const out = "goos: linux\npkg: example\n" +
		"BenchmarkPodEvent/10000-2 \t 20\t 98765 ns/op\t 27001 B/op\t 123 allocs/op\n" +
		"BenchmarkPodEvent/10000-2 \t 20\t 100000 ns/op\t 27000 B/op\t 123 allocs/op\nPASS\n"
	rounds, err := parse([]byte(out), "PodEvent/10000")
	if err != nil || len(rounds) != 2 || rounds[1] != (round{1e-4, 27000}) {
		t.Errorf("%v, %v", rounds, err)
	}
	for what, out := range map[string]string{
		"nothing": "PASS\n", "another": "BenchmarkPodEvent/10-2 1 5 ns/op 6 B/op\n", "no bytes": "BenchmarkPodEvent/10000-2 1 5 ns/op\n",
	} {
		if rounds, err := parse([]byte(out), "PodEvent/10000"); err == nil {
			t.Errorf("%s: %v, want an error", what, rounds)
		}
	}
}

func TestAttribute(t *testing.T) {
	const out = "=== RUN   TestWritesOfALife\n=== ATTR  TestWritesOfALife writes-a-life 12.8\n--- PASS: TestWritesOfALife (1.00s)\n"
	if n, err := attribute([]byte(out), lifeTest, lifeAttribute); err != nil || n != 12.8 {
		t.Errorf("%v, %v", n, err)
	}
	if n, err := attribute([]byte("--- SKIP: TestWritesOfALife (0.00s)\n"), lifeTest, lifeAttribute); err == nil {
		t.Errorf("a skipped test: %v, want an error", n)
	}
}
