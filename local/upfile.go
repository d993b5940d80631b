package local

import (
	"encoding/json"
	"fmt"
	"os"
)

// UpFile is <state>/up.json, for scripts. It is there while `up` is ready and
// is rewritten when a process was restarted.
type UpFile struct {
	GatewayURL string `json:"gatewayURL"`
	// Domain is where SDKs find <port>-<ID> below, with its port; with --tls also
	// api, and E2B_DOMAIN.
	Domain string `json:"domain"`
	// CAFile is the certificate to trust, NodeResolve what lets Node find Domain;
	// with --tls only.
	CAFile      string `json:"caFile,omitempty"`
	NodeResolve string `json:"nodeResolve,omitempty"`

	APIKey string `json:"apiKey"`
	// ConsoleURL has the console's token.
	ConsoleURL string         `json:"consoleURL,omitempty"`
	Kubeconfig string         `json:"kubeconfig"`
	MetricsURL string         `json:"metricsURL"`
	Pids       map[string]int `json:"pids"`
	Gateways   []GatewayInfo  `json:"gateways"`
}

// GatewayInfo is one gateway in up.json.
type GatewayInfo struct {
	Name       string         `json:"name"`
	URL        string         `json:"url"`
	Domain     string         `json:"domain"`
	MetricsURL string         `json:"metricsURL"`
	Pids       map[string]int `json:"pids"`
}

// ReadUpFile reads up.json; an *ErrNotRunning if no `up` with that state folder
// runs, whatever the file says.
func ReadUpFile(stateDir string) (UpFile, error) {
	s := newState(stateDir)
	var up UpFile
	pid, err := s.running()
	if err != nil {
		return up, err
	}
	if pid == 0 {
		return up, &ErrNotRunning{stateDir}
	}
	b, err := os.ReadFile(s.upFile())
	if os.IsNotExist(err) {
		return up, fmt.Errorf("Sandlane (pid %d) is still starting or already stopping: see `sandlane logs up`", pid)
	}
	if err != nil {
		return up, fmt.Errorf("read up.json: %w", err)
	}
	if err := json.Unmarshal(b, &up); err != nil {
		return up, fmt.Errorf("read %s: %w", s.upFile(), err)
	}
	return up, nil
}

func (s state) writeUpFile(up UpFile) error {
	b, err := json.MarshalIndent(up, "", "  ")
	if err != nil {
		return fmt.Errorf("write up.json: %w", err)
	}
	return writeFile(s.upFile(), append(b, '\n'), 0o600) // it holds a key
}
