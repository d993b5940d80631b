package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/credentials"
	"github.com/sandlane/sandlane/test/kubetest"
)

// Keys, ends and tokens are to be had on any cluster, not on that of `up` alone.
func TestCommandsOnACluster(t *testing.T) {
	c, ns, kubeconfig := kubetest.Client(t), kubetest.Namespace(t), writeKubeconfig(t)
	do := func(line string) string {
		t.Helper()
		code, stdout, stderr := run(t, append(strings.Fields(line), "--kubeconfig", kubeconfig, "--system-namespace", ns, "--key-namespace", ns)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit code %d, %s", line, code, stderr)
		}
		return stdout
	}
	keys := func() []credentials.Key {
		t.Helper()
		list, err := credentials.NewStore(c, ns).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	do("apikey create --team red --namespace " + ns)
	made := keys()
	if len(made) != 1 || made[0].Team != "red" || made[0].Namespace != ns {
		t.Fatalf("the cluster has the keys %+v", made)
	}
	if list := do("apikey list"); !strings.Contains(list, made[0].ID) {
		t.Errorf("the list lacks key %s:\n%s", made[0].ID, list)
	}
	do("apikey revoke " + made[0].ID)
	if left := keys(); len(left) != 0 {
		t.Errorf("after the revocation there are %+v", left)
	}

	// Helm may make again what it made.
	do("apikey create --team red --namespace " + ns)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "api-key-" + keys()[0].ID}}
	if err := c.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":"blue"}}}`))); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "apikey", "revoke", keys()[0].ID, "--kubeconfig", kubeconfig, "--key-namespace", ns)
	if code != 0 || !strings.HasSuffix(stdout, " revoked\n") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "release blue: an upgrade") || !strings.Contains(stderr, "rollback") {
		t.Errorf("revoking a key of Helm's: exit code %d, %q, %q", code, stdout, stderr)
	}
	if left := keys(); len(left) != 0 {
		t.Errorf("after the revocation of Helm's there are %+v", left)
	}

	s := &v1alpha1.Sandbox{Spec: v1alpha1.SandboxSpec{Namespace: ns, Pool: "p"}}
	s.Name = kubetest.Name("cli")
	if err := c.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tokens, err := credentials.LoadTokens(t.Context(), c, ns)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := do("token "+s.Name), tokens.Envd(s.Name, s.UID)+"\n"; got != want {
		t.Errorf("the token is %q, want %q", got, want)
	}
	do("end " + s.Name)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || s.Spec.End == nil {
		t.Errorf("ended: %+v, %v", s.Spec.End, err)
	}
}

// A command changes a cluster only if its flags name it.
func TestWhichCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t))
	for line, want := range map[string]string{
		"--state " + t.TempDir():                      "not running",
		"--kubeconfig " + t.TempDir() + "/none":       "none",
		"--kubeconfig k --state " + t.TempDir():       "give one of them",
		"--system-namespace n --state " + t.TempDir(): "not running",
	} {
		for _, command := range []string{"apikey create", "apikey list", "apikey revoke 1", "end x", "token x"} {
			code, stdout, stderr := run(t, strings.Fields(command+" "+line)...)
			if code == 0 || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s %s: exit code %d, %q, %q; want one line with %q", command, line, code, stdout, stderr, want)
			}
		}
	}
}
