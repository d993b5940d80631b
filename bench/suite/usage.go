package suite

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// CPU returns the processor time that the process has used so far.
func (p *Process) CPU() (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %s: %w", p.Name, err)
	}
	// The name in brackets may hold anything; utime and stime are the 12th and
	// 13th field after it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the CPU time of %s: %q", p.Name, text)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of %s: %w", p.Name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// OwnCPU is the processor time of this process so far.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail for these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Memory returns the bytes of the process that are in memory.
func (p *Process) Memory() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of %s: %w", p.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of %s: %w", p.Name, err)
			}
			return kilobytes * 1024, nil
		}
	}
	return 0, fmt.Errorf("read the memory of %s: no VmRSS", p.Name)
}
