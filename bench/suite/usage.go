package suite

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// CPU returns the processor time that the process has used so far.
func (p *Process) CPU() (time.Duration, error) {
	used, err := cpu(p.cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("read what %s uses: %w", p.Name, err)
	}
	return used, nil
}

// Memory returns the bytes of the process that are in memory.
func (p *Process) Memory() (float64, error) {
	stat, err := p.stat()
	if err != nil {
		return 0, err
	}
	return float64(stat.ResidentMemory()), nil
}

func (p *Process) stat() (procfs.ProcStat, error) {
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("read what %s uses: %w", p.Name, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return stat, fmt.Errorf("read what %s uses: %w", p.Name, err)
	}
	return stat, nil
}

// cpu reads the CPU clock of a process, which counts nanoseconds, while /proc counts
// hundredths of a second. The number of the clock is computed from the number of the process
// as in glibc's clock_getcpuclockid: its bits inverted, above the kind of clock.
func cpu(pid int) (time.Duration, error) {
	const all = 2 // threads, as the scheduler counts them
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|all), &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// OwnCPU is the processor time of this process so far.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail for these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// CPUByProgram returns the processor time so far of this process, which is the client, and
// of all processes that it started and that still run, added up by program.
func CPUByProgram() (map[string]time.Duration, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("read what the processes use: %w", err)
	}
	used := map[string]time.Duration{"client": OwnCPU()}
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil || stat.PPID != os.Getpid() { // it has ended since, or was not started by this process
			continue
		}
		if took, err := cpu(p.PID); err == nil { // an error means that it has ended just now
			used[program(stat.Comm)] += took
		}
	}
	return used, nil
}

// machineTimes returns how all processors together have spent their time so far; zero if the
// kernel does not say.
func machineTimes() procfs.CPUStat {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return procfs.CPUStat{}
	}
	stat, err := fs.Stat()
	if err != nil {
		return procfs.CPUStat{}
	}
	return stat.CPUTotal
}

// Stolen begins to count. The function that it returns returns the share of the processors'
// time since then that the hypervisor gave to other machines, from 0 to 1; 0 also if the
// kernel does not know.
func Stolen() func() float64 {
	from := machineTimes()
	return func() float64 { return stolen(from, machineTimes()) }
}

// stolen returns the share of the time between from and to that the hypervisor gave to other
// machines. The time of guests is part of user and nice.
func stolen(from, to procfs.CPUStat) float64 {
	sum := func(s procfs.CPUStat) float64 {
		return s.User + s.Nice + s.System + s.Idle + s.Iowait + s.IRQ + s.SoftIRQ + s.Steal
	}
	all := sum(to) - sum(from)
	if all <= 0 {
		return 0
	}
	return (to.Steal - from.Steal) / all
}

// program names the program of a process by the kernel's name for it, which has at most 15
// letters.
func program(comm string) string {
	switch {
	case strings.HasPrefix(comm, "envoy"): // its file has its version
		return "envoy"
	case comm == "sandlane-bench":
		return "upstream"
	case comm == "sandlane":
		return "gateway"
	}
	return comm
}
