package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandlane/sandlane/console/processes"
)

// logBytes bounds what is read of one log, and metricsBytes the metrics of one gateway.
const logBytes, metricsBytes = 4 << 20, 16 << 20

// Processes finds the processes of the `up` that runs with a state folder, for the console
// and its relatives. An *ErrNotRunning if none runs.
func Processes(stateDir string) processes.Finder {
	return func(context.Context) ([]processes.Process, error) {
		up, err := ReadUpFile(stateDir)
		if err != nil {
			return nil, err
		}
		return up.processes(stateDir)
	}
}

// processes is one for each log, and those of gateways have metrics.
func (up *UpFile) processes(stateDir string) ([]processes.Process, error) {
	s := newState(stateDir)
	files, err := filepath.Glob(s.path("logs", "*.log"))
	if err != nil {
		return nil, fmt.Errorf("list the logs: %w", err)
	}
	all := make([]processes.Process, 0, len(files))
	for _, file := range files {
		p := processes.Process{
			Name:    strings.TrimSuffix(filepath.Base(file), ".log"),
			ReadLog: func(context.Context, int) ([]byte, error) { return endOf(file) },
		}
		if i := slices.IndexFunc(up.Gateways, func(g GatewayInfo) bool { return g.Name == p.Name }); i >= 0 {
			p.Gateway, p.ReadMetrics = true, up.Gateways[i].readMetrics
		}
		all = append(all, p)
	}
	return all, nil
}

// endOf is the end of a file: all of it up to logBytes.
func endOf(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logBytes {
		if _, err := f.Seek(-logBytes, io.SeekEnd); err != nil {
			return nil, fmt.Errorf("read a log: %w", err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, logBytes))
	if err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	return text, nil
}

// readMetrics implements processes.Process.ReadMetrics.
func (g GatewayInfo) readMetrics(ctx context.Context, path string) ([]byte, error) {
	return read(ctx, strings.TrimSuffix(g.MetricsURL, "/metrics")+path)
}

func read(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, metricsBytes))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return text, nil
}
