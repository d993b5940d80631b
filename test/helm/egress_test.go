package helm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandlane/sandlane/test/certs"
)

const (
	// egressAddress is the Service's, and internetAddress that of all names, beyond the
	// cluster's addresses.
	egressAddress, internetAddress = "10.96.0.53", "203.0.113.10"
	// credential is the secret's value, which no sandbox has.
	credential = "hunter2-never-in-the-sandbox"
)

// byNamePool is a pool whose sandboxes reach hosts by name.
const byNamePool = `{"apiVersion":"sandlane.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"by-name","namespace":"default"},"spec":{"replicas":1,"egress":"ByName",
"firstRequest":{"access":"Public","egress":{"allowNames":["plain.example"]}},
"template":{"template":{"spec":{"terminationGracePeriodSeconds":1,"automountServiceAccountToken":false,"enableServiceLinks":false,
"containers":[{"name":"main","image":"sandlane-test-base:test","imagePullPolicy":"IfNotPresent",
"ports":[{"name":"envd","containerPort":49983}],"readinessProbe":{"httpGet":{"path":"/health","port":49983},"periodSeconds":1}}]}}}}}`

// byName are the chart's values for egress processes with these flags.
func byName(flags ...string) []string {
	return []string{
		"egress.enabled=true,egress.serviceAddress=" + egressAddress,
		"egress.extraArgs={" + strings.Join(flags, ",") + "}",
		"egress.extraVolumes[0].name=internet,egress.extraVolumes[0].configMap.name=internet",
		"egress.extraVolumeMounts[0].name=internet,egress.extraVolumeMounts[0].mountPath=/etc/internet",
	}
}

// TestEgress is egress by name on a real node: the chart's Deployment behind its Service, with
// policies enforced and CoreDNS as the cluster's name server, and one of its pods killed under
// load. `hack/helm-test.sh egress` runs it.
func TestEgress(t *testing.T) {
	python := pythonSDK(t)
	c := boot(t, nameServer)
	for i, step := range []step{
		{"install", c.install},
		{"team", c.team},
		{"egress by name", func(t *testing.T) { c.egress(t, python) }},
		{"uninstall that ends sandboxes", c.endAndUninstall},
	} {
		began := time.Now()
		if !t.Run(step.name, step.run) && i < 2 {
			return
		}
		fmt.Printf("    %-32s %5.1f s\n", step.name, time.Since(began).Seconds())
	}
}

// egress: an upgrade adds the egress processes, and a program of the SDK reaches the names
// that it allows its sandbox, one with a credential that the sandbox never had, and no other;
// also while one of the two processes is killed.
func (c *cluster) egress(t *testing.T, python string) {
	c.internet(t)
	c.names(t)
	c.roll(t, strings.Join(append(byName("--upstream-ca=/etc/internet/ca.crt"), "networkPolicies.enabled=true,networkPolicies.apiServerRanges={10.89.0.1/32}"), ","))
	c.ready(t, "sandlane-egress")
	c.apply(t, byNamePool)
	pod, _ := c.idlePod(t, "by-name")
	if server := c.kubectl(t, "get", "pod", pod, "-o", "jsonpath={.spec.dnsPolicy} {.spec.dnsConfig.nameservers[*]}"); server != "None "+egressAddress {
		t.Errorf("a pod's name server is %q", server)
	}
	plain := c.kubectl(t, "get", "pods", "-l", "sandlane.dev/phase=idle,sandlane.dev/pool=base", "-o", "jsonpath={.items[0].metadata.name}")
	if server := c.kubectl(t, "exec", plain, "--", "/bin/cat", "/etc/resolv.conf"); !strings.Contains(server, "nameserver "+nameServer) {
		t.Errorf("a pod of a pool without egress by name has the name server\n%s", server)
	}
	stand := c.startClient(t, "enforce")
	stand.open(t)
	c.tryWays(t, []way{
		{inPod("default", plain), nameServer, "53", false},
		{inPod("default", pod), internetAddress, "443", false}, // it is no sandbox yet, that denies everything
		{inPod("default", pod), "10.96.0.1", "443", true},
		{inPod("default", pod), egressAddress, "443", false},
		{inPod("default", pod), c.addresses(t, "sandlane-egress")[0], "9443", true},
	}, true)
	c.firstNames(t)
	c.idlePod(t, "by-name")
	c.killEgress(t, python)
	if err := stand.Close(); err != nil {
		t.Fatal(err)
	}
	var tables int
	stand.wait(t, &tables)
	logs := c.kubectl(t, "-n", system, "logs", "-l", "app=sandlane-egress", "--tail=-1")
	if !strings.Contains(logs, `"host":"api.example"`) || strings.Contains(logs, credential) {
		t.Errorf("egress has no record of a request, or shows the credential:\n%s", logs)
	}
	c.kubectl(t, "delete", "sandboxpool", "by-name", "--timeout=60s")
}

// firstNames: a sandbox that a first request makes connects to the name that its pool says, by
// egress, and to nothing else.
func (c *cluster) firstNames(t *testing.T) {
	t.Helper()
	const id = "named"
	c.eventually(t, func(out string) bool { return strings.HasPrefix(out, "2") }, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "30",
		"-H", "X-Sandbox-Id: "+id, "-H", "X-Sandbox-Pool: default/by-name", "-H", "X-Sandbox-Port: 49983", c.gateway(t)+"/health")
	pod, of := c.podOf(t, id)
	for url, want := range map[string]string{"https://plain.example/": "plain.example :0", "https://api.example/": ":6"} { // 6: not resolved
		out := c.kubectl(t, "exec", pod, "--", "/bin/bash", "-c", `curl -sk --max-time 20 "$0"; echo ":$?"`, url)
		if out != want {
			t.Errorf("%s is %q, want %q", url, out, want)
		}
	}
	c.tryWays(t, []way{
		{inPod("default", pod), egressAddress, "443", false},
		{inPod("default", pod), internetAddress, "443", true},
		{inPod("default", pod), nameServer, "53", true},
	}, true)
	c.run(t, c.sandlane, "end", "--kubeconfig", c.Kubeconfig(), id)
	c.ended(t, id, of, "Released", "Completed", "Deleted")
}

// killEgress restarts the egress processes, and then kills one of them, while a sandbox sends
// requests, each on a new connection. The first breaks none.
func (c *cluster) killEgress(t *testing.T, python string) {
	t.Helper()
	rolled := c.loadedEgress(t, python, func() {
		before := c.ofPods(t, "sandlane-egress", "metadata.uid")
		c.kubectl(t, "-n", system, "rollout", "restart", "deployment/sandlane-egress")
		c.ready(t, "sandlane-egress")
		c.eventually(t, func(out string) bool {
			return !slices.ContainsFunc(before, func(uid string) bool { return strings.Contains(out, uid) })
		}, "kubectl", "-n", system, "get", "pods", "-l", "app=sandlane-egress", "-o", "jsonpath={.items[*].metadata.uid}")
	})
	fmt.Printf("      %d requests, %d broken while the egress processes were restarted\n", rolled.OK+rolled.Broken, rolled.Broken)
	if rolled.Broken > 0 {
		t.Errorf("a restart breaks requests: %+v", rolled)
	}
	restarts := func() string {
		return c.kubectl(t, "-n", system, "get", "pods", "-l", "app=sandlane-egress", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	}
	killed := c.loadedEgress(t, python, func() {
		before := restarts()
		c.kill(t, "sandlane egress", c.ofPods(t, "sandlane-egress", "metadata.uid")[0], "KILL")
		c.eventually(t, func(string) bool { return restarts() != before }, "true")
		c.ready(t, "sandlane-egress")
	})
	fmt.Printf("      %d requests, %d broken while one of two egress processes was killed\n", killed.OK+killed.Broken, killed.Broken)
	if killed.Broken > killed.OK {
		t.Errorf("%+v", killed)
	}
}

// egressLoad counts the requests of a sandbox by name.
type egressLoad struct {
	OK, Broken int
	Wrong      []string
}

// loadedEgress has a sandbox send requests by name until meanwhile returns. None may have a wrong
// answer.
func (c *cluster) loadedEgress(t *testing.T, python string, meanwhile func()) (load egressLoad) {
	t.Helper()
	dir := c.tempDir(t)
	loaded, over := filepath.Join(dir, "loaded"), filepath.Join(dir, "over")
	said := make(chan string, 1)
	go func() {
		defer close(said)
		defer func() { _ = os.WriteFile(loaded, nil, 0o600) }() // also if it fails
		said <- c.python(t, python, "egress.py", credential, internetAddress, nameServer, loaded, over)
	}()
	defer func() { _ = os.WriteFile(over, nil, 0o600) }()
	c.eventually(t, func(string) bool { return true }, "ls", loaded)
	meanwhile()
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := <-said
	line, _, _ := strings.Cut(out, "\n")
	if err := json.Unmarshal([]byte(line), &load); err != nil {
		t.Fatalf("the program printed %q: %v", out, err)
	}
	if load.OK == 0 || len(load.Wrong) > 0 {
		t.Errorf("%+v", load)
	}
	return load
}

// internet starts the hosts and the name server of the internet on the node, and puts their
// authority into a ConfigMap. They end with the test.
func (c *cluster) internet(t *testing.T) {
	t.Helper()
	c.run(t, "ip", "address", "replace", internetAddress+"/32", "dev", "lo")
	authority := certs.New(t)
	cert, key := authority.Issue(t, certs.Leaf{Names: []string{"*.example"}, Usage: x509.ExtKeyUsageServerAuth})
	dir := c.tempDir(t)
	for name, text := range map[string][]byte{"ca.crt": authority.PEM(), "tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "-n", system, "create", "configmap", "internet", "--from-file="+filepath.Join(dir, "ca.crt"))
	hosts := c.startClient(t, "internet", dir)
	hosts.open(t)
	t.Cleanup(func() {
		_ = hosts.Close()
		_ = hosts.cmd.Wait()
	})
}

// serveInternet serves all names below example at internetAddress, by HTTPS with the
// certificate in the folder args[0], until its standard input ends. An answer is the
// request's host and credential.
func serveInternet(_ context.Context, args []string) (any, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(args[0], "tls.crt"), filepath.Join(args[0], "tls.key"))
	if err != nil {
		return nil, err
	}
	address := netip.MustParseAddr(internetAddress)
	names, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 53)))
	if err != nil {
		return nil, err
	}
	hosts, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 443)))
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s", r.Host, r.Header.Get("Authorization"))
		}),
	}
	go answerNames(names, address)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Println(opened)
	if err := server.ServeTLS(hosts, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return nil, err
	}
	return nil, nil
}

// answerNames answers every question for an address with that one.
func answerNames(c *net.UDPConn, address netip.Addr) {
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // closed
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		answer := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true}, Questions: m.Questions}
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			answer.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: address.As4()},
			}}
		}
		if out, err := answer.Pack(); err == nil {
			_, _ = c.WriteToUDPAddrPort(out, from)
		}
	}
}
