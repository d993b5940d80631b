package sandboxdclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
)

// errOtherProcess: an earlier process of the pod's sandboxd restored the files, and its
// container, with the files, is gone.
var errOtherProcess = errors.New("its container has restarted since the files were restored")

// errUnsigned: this gateway cannot make a signature that the pod accepts, and trying again
// does not help.
var errUnsigned = errors.New("it cannot be signed")

// errNoKey is the errUnsigned of a gateway that does not have the pod's key. It says nothing
// about the pod, whose sandboxd may have taken orders signed with that key before.
var errNoKey = fmt.Errorf("%w: there is no such init key", errUnsigned)

// claimedPod is a claimed pod and its sandbox, as far as Init reads them.
type claimedPod struct {
	// ID, UID and Unsecured are the sandbox's; Template is its env, or its pool without one.
	ID, Template string
	UID          types.UID
	Unsecured    bool
	// Rules: the sandbox has rules for egress. The watches do not show them, and a sandbox of a
	// first request has none.
	Rules bool
	// ClaimID, PodName, PodUID and Addr are the pod's; Sandboxd: it runs sandboxd.
	ClaimID, PodName string
	PodUID           types.UID
	Addr             netip.Addr
	Sandboxd         bool
	// InitKey is the ID of the key that signs what its sandboxd is sent; empty: it has none.
	InitKey string
}

// claimed reads a claimedPod from its objects. Addr is the zero Addr if the pod cannot be reached.
func claimed(s *v1alpha1.Sandbox, pod *corev1.Pod) claimedPod {
	addr, _ := netip.ParseAddr(v1alpha1.RoutableAddress(pod)) // one that is none is the zero Addr
	return claimedPod{
		ID: s.Name, UID: s.UID, Template: cmp.Or(s.Spec.Env, s.Spec.Pool), Unsecured: s.Spec.Network.Unsecured, Rules: hasRules(s),
		ClaimID: pod.Annotations[v1alpha1.AnnotationClaim], PodName: pod.Name, PodUID: pod.UID, Addr: addr,
		Sandboxd: v1alpha1.RunsSandboxd(&pod.Spec), InitKey: pod.Labels[v1alpha1.LabelInitKey],
	}
}

func hasRules(s *v1alpha1.Sandbox) bool { return s.Spec.Egress != nil && len(s.Spec.Egress.Rules) > 0 }

// Init sends the sandbox's token and environment to the pod's sandboxd, which answers no
// request before. It may be repeated with the same environment. The verdict
// activation.EndSandbox means that repeating it does not help.
func (a *Agent) Init(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, env map[string]string) error {
	return a.init(ctx, claimed(s, pod), env, nil)
}

// InitRestored is Init for the process of sandboxd that restored the archive r, and no
// other: a container that has restarted has lost those files, so InitRestored says
// activation.EndSandbox. With a nil r it is Init.
func (a *Agent) InitRestored(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod, env map[string]string, r *Restoring) error {
	return a.init(ctx, claimed(s, pod), env, r)
}

func (a *Agent) init(ctx context.Context, to claimedPod, env map[string]string, r *Restoring) error {
	if !to.Sandboxd {
		return activation.EndSandbox.With(fmt.Errorf("no container of pod %s has sandboxd's port %d", to.PodName, v1alpha1.SandboxdPort))
	}
	if !to.Addr.IsValid() {
		return fmt.Errorf("pod %s cannot be reached: it has no address", to.PodName)
	}
	trusted, err := a.trustedBy(ctx, to.Rules)
	if err != nil {
		return fmt.Errorf("initialise sandboxd of pod %s: %w", to.PodName, err)
	}
	body, err := json.Marshal(struct {
		Token    string            `json:"accessToken"`
		Env      map[string]string `json:"envVars,omitempty"`
		CABundle string            `json:"caBundle,omitempty"`
		Now      time.Time         `json:"timestamp"`
	}{a.token(to.ID, to.UID, to.Unsecured), env, string(trusted), time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("initialise sandboxd: %w", err)
	}
	c := a.connect(to.Addr)
	defer c.close()
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(sandboxHeader, to.ID)
	header.Set(templateHeader, to.Template)
	switch err := a.sign(ctx, c, to, header, body, r); {
	case errors.Is(err, errUnsigned), errors.Is(err, errOtherProcess):
		return activation.EndSandbox.With(fmt.Errorf("initialise sandboxd of pod %s: %w", to.PodName, err))
	case err != nil:
		return fmt.Errorf("initialise sandboxd of pod %s: %w", to.PodName, err)
	}
	status, _, err := c.call(ctx, http.MethodPost, "/init", header, body)
	switch {
	case err != nil:
		return fmt.Errorf("initialise sandboxd of pod %s: %w", to.PodName, err)
	case status < 300:
		return nil
	case status == http.StatusConflict:
		return activation.EndSandbox.With(fmt.Errorf("sandboxd of pod %s was initialised otherwise already", to.PodName))
	case status == http.StatusUnauthorized:
		return activation.EndSandbox.With(fmt.Errorf("sandboxd of pod %s refuses this gateway's signature", to.PodName))
	case lasting(status):
		return activation.EndSandbox.With(fmt.Errorf("pod %s answered /init with %d", to.PodName, status))
	}
	return fmt.Errorf("initialise sandboxd of pod %s: status %d", to.PodName, status)
}

// trustedBy returns the authorities that a sandbox's programs are to trust beside their
// image's: egress's, if it has rules, so that no other sandbox trusts what egress could sign.
func (a *Agent) trustedBy(ctx context.Context, rules bool) ([]byte, error) {
	if a.Authority == nil || !rules {
		return nil, nil
	}
	return a.Authority(ctx)
}

// Trust has the programs of a sandbox that runs trust what Init would have them trust now. It
// does nothing for a sandbox without rules, and may be repeated.
func (a *Agent) Trust(ctx context.Context, s *v1alpha1.Sandbox, pod *corev1.Pod) error {
	trusted, err := a.trustedBy(ctx, hasRules(s))
	if err != nil || trusted == nil {
		return err
	}
	addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
	if err != nil {
		return fmt.Errorf("pod %s cannot be reached: %w", pod.Name, err)
	}
	c := a.connect(addr)
	defer c.close()
	header := commandHeader(s.Name, "")
	if err := a.signCommand(ctx, c, pod, header, "trust", s.Name, "", trusted); err != nil {
		return fmt.Errorf("have pod %s trust egress: %w", pod.Name, err)
	}
	status, _, err := c.call(ctx, http.MethodPut, "/init", header, trusted)
	if err == nil && status >= 300 {
		err = fmt.Errorf("status %d: %w", status, ErrRefused)
	}
	if err != nil {
		return fmt.Errorf("have pod %s trust egress: %w", pod.Name, err)
	}
	return nil
}

// lasting reports whether sandboxd would answer the same request with this status again.
func lasting(status int) bool {
	return status < 500 && status != http.StatusTooManyRequests
}

// sign adds the signature of an /init to its header. It signs with the key that the pod's
// label names, over the pod's UID and the nonce that its sandboxd made at its start, so
// that no other pod accepts the signature, nor this pod after a restart. After a restore
// the nonce must be that of the process which restored the files.
func (a *Agent) sign(ctx context.Context, c *connection, to claimedPod, header http.Header, body []byte, r *Restoring) error {
	nonce, err := a.nonce(ctx, c, to.InitKey)
	switch {
	case err != nil:
		return err
	case r != nil && (r.process == "" || r.process != nonce):
		return errOtherProcess
	}
	return a.signNonce(ctx, to.InitKey, header, initMessage(string(to.PodUID), nonce, header.Get(sandboxHeader), header.Get(templateHeader), body))
}

// signBy adds the signature of the message that messageOf makes with the pod's nonce.
func (a *Agent) signBy(ctx context.Context, c *connection, pod *corev1.Pod, header http.Header, messageOf func(nonce string) []byte) error {
	key := pod.Labels[v1alpha1.LabelInitKey]
	nonce, err := a.nonce(ctx, c, key)
	if err != nil {
		return err
	}
	return a.signNonce(ctx, key, header, messageOf(nonce))
}

// nonce asks the pod's sandboxd for the nonce that signatures must include.
func (a *Agent) nonce(ctx context.Context, c *connection, initKey string) (string, error) {
	answer, err := a.challenge(ctx, c, initKey)
	return answer.Nonce, err
}

// challenge is sandboxd's answer to GET /init.
type challenge struct {
	Nonce string `json:"nonce"`
	// Restored is the ID of the restore that sandboxd's process has completed; empty if none.
	Restored string `json:"restored"`
}

func (a *Agent) challenge(ctx context.Context, c *connection, initKey string) (challenge, error) {
	var out challenge
	if initKey == "" {
		return out, fmt.Errorf("%w: it has no label %s, which the controller gives to pods that it makes", errUnsigned, v1alpha1.LabelInitKey)
	}
	status, answer, err := c.call(ctx, http.MethodGet, "/init", nil, nil)
	if err != nil {
		return out, err
	}
	switch {
	case status != http.StatusOK && lasting(status):
		return out, fmt.Errorf("%w: GET /init is answered with %d; does another program serve at sandboxd's port?", errUnsigned, status)
	case status != http.StatusOK:
		return out, fmt.Errorf("GET /init: status %d: %w", status, ErrRefused)
	case json.Unmarshal(answer, &out) != nil || out.Nonce == "":
		return out, fmt.Errorf("%w: GET /init is answered without a nonce", errUnsigned)
	}
	return out, nil
}

// signNonce adds the signature of a message that has the pod's nonce in it.
func (a *Agent) signNonce(ctx context.Context, initKey string, header http.Header, message []byte) error {
	signature, ok, err := a.signer.Sign(ctx, initKey, message)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: %q", errNoKey, initKey)
	}
	header.Set(signatureHeader, base64.StdEncoding.EncodeToString(signature))
	return nil
}

// initMessage returns the message that is signed for /init; sandboxd/access builds the same
// message to verify the signature. The nonce comes from the pod and is not trusted: because
// it is quoted, it cannot change the meaning of the other parts.
func initMessage(podUID, nonce, sandbox, template string, body []byte) []byte {
	return fmt.Appendf(nil, "sandlane init 1\n%q\n%q\n%q\n%q\n%x\n", podUID, nonce, sandbox, template, sha256.Sum256(body))
}
