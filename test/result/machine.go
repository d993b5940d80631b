package result

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine describes the machine of a run.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Go     string `json:"go"`
	Envoy  string `json:"envoy,omitempty"`
	Load   string `json:"load_generator,omitempty"`
	// LoadAverage is the load average at the start. If it is above the number of cores,
	// other programs are using the machine.
	LoadAverage string `json:"load_average"`
}

// ThisMachine describes this machine; fields that are not known are empty.
func ThisMachine() Machine {
	return Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), CPU: field("/proc/cpuinfo", "model name"),
		Memory: field("/proc/meminfo", "MemTotal"), LoadAverage: firstLine("/proc/loadavg"),
	}
}

// Crowded reports whether, in the minute before the start, other work used more than half of
// the cores.
func (m Machine) Crowded() bool {
	var minute float64
	_, err := fmt.Sscan(m.LoadAverage, &minute)
	return err == nil && minute > float64(m.Cores)/2
}

// Label returns a short name of the machine for a file name.
func (m Machine) Label() string {
	label := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ', r == '-', r == '_':
			return '-'
		}
		return -1
	}, m.CPU)
	label = strings.Join(strings.FieldsFunc(label, func(r rune) bool { return r == '-' }), "-")
	if label == "" {
		label = m.Arch
	}
	return label
}

// Output runs a program and returns what it prints, in one line; empty if it fails.
func Output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// field reads the first "name : value" of a file.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
