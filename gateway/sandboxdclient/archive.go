package sandboxdclient

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/gateway/activation"
)

// Errors of Archive and Restore. After any other error the call may be tried again.
var (
	// ErrNoArchive: the pod's sandboxd cannot archive files, and trying again does not help.
	ErrNoArchive = errors.New("the sandbox's files cannot be kept")
	// ErrBusy: the sandbox is paused, or sandboxd is reading its files already.
	ErrBusy = errors.New("the sandbox cannot be held still at the moment")
	// ErrMore: the two seconds of a call are over, and a part of the archive is not sent yet.
	ErrMore = errors.New("the archive is not restored yet")
)

const (
	argumentsHeader = "Sandlane-Arguments"
	markHeader      = "Sandlane-Mark"
	// chunkSize is how many bytes of an archive one request sends at most. It is so small
	// that even a slow disk writes them well within the two seconds of a call.
	chunkSize = 1 << 20
)

// errDamaged: a part of an archive is not the one that was kept.
var errDamaged = errors.New("the archive is damaged")

// Parts is an archive that is read in parts of up to 1 MiB. A checkpoint.Archive implements
// it.
type Parts interface {
	// Part reads the next part into buf and returns its length, the digest with which it was
	// kept, and whether it is the last one. It need not compare the part with the digest.
	Part(buf []byte) (n int, digest [sha256.Size]byte, last bool, err error)
}

// Mark is where an archive ended, as the sandboxd that made it counts time; the zero value is
// before all changes.
type Mark int64

// Archive stops all processes of the pod's sandbox and returns the archive of its files;
// the processes continue at the archive's end. The archive is complete only if reading it
// ends with io.EOF. The caller closes it.
//
// Archive may take longer than the two seconds of other calls, since it changes nothing, and
// all bytes on its connection come from the process that accepted the signature.
func (a *Agent) Archive(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error) {
	body, _, err := a.ArchiveSince(ctx, id, pod, 0)
	return body, err
}

// ArchiveSince is Archive of what was changed after a mark, or just before it. It returns the
// archive's own mark.
func (a *Agent) ArchiveSince(ctx context.Context, id string, pod *corev1.Pod, since Mark) (io.ReadCloser, Mark, error) {
	body, err := a.archive(ctx, id, pod, map[string]any{"since": since})
	if err != nil {
		return nil, 0, err
	}
	return body, body.mark, nil
}

// ArchiveAll is Archive of a frozen sandbox, which stays frozen, with a line before the
// archive: the environment with which the sandbox was initialised, as a JSON object. It
// returns ErrBusy if the sandbox was resumed meanwhile.
func (a *Agent) ArchiveAll(ctx context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error) {
	body, err := a.archive(ctx, id, pod, map[string]any{"environment": true, "frozen": true})
	if err != nil {
		return nil, err
	}
	return body, nil
}

func (a *Agent) archive(ctx context.Context, id string, pod *corev1.Pod, order map[string]any) (*archiveBody, error) {
	c, err := a.reach(pod)
	if err != nil {
		return nil, fmt.Errorf("keep the files of pod %s: %w", pod.Name, err)
	}
	order["emptyDirs"] = v1alpha1.EmptyDirs(&pod.Spec)
	arguments, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("keep the files of pod %s: %w", pod.Name, err)
	}
	body, err := a.openArchive(ctx, c, id, pod, string(arguments))
	if err != nil {
		c.close()
		return nil, fmt.Errorf("keep the files of pod %s: %w", pod.Name, err)
	}
	return body, nil
}

func (a *Agent) openArchive(ctx context.Context, c *connection, id string, pod *corev1.Pod, arguments string) (*archiveBody, error) {
	header := commandHeader(id, arguments)
	err := a.signCommand(ctx, c, pod, header, "archive", id, arguments, nil)
	if errors.Is(err, errUnsigned) {
		return nil, fmt.Errorf("%w: %w", ErrNoArchive, err)
	}
	if err != nil {
		return nil, err
	}
	res, err := c.open(ctx, http.MethodPost, "/archive", header, nil)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK:
		// A program that is root in the sandbox may answer any mark, as it may any file.
		mark, _ := strconv.ParseInt(res.Header.Get(markHeader), 10, 64)
		return &archiveBody{res.Body, c, Mark(mark)}, nil
	case http.StatusPreconditionFailed:
		err = ErrNotInitialised
	case http.StatusConflict, http.StatusLocked:
		err = ErrBusy
	case http.StatusNotImplemented, http.StatusUnauthorized, http.StatusForbidden:
		err = ErrNoArchive
	default:
		err = ErrRefused
	}
	return nil, errors.Join(fmt.Errorf("status %d: %w", res.StatusCode, err), res.Body.Close())
}

// archiveBody is the body of an answer; Close also closes the connection.
type archiveBody struct {
	io.ReadCloser
	c    *connection
	mark Mark
}

func (b *archiveBody) Close() error {
	err := b.ReadCloser.Close()
	b.c.close()
	return err
}

// Restoring is the state of a restore into one pod between two calls of Restore.
type Restoring struct {
	// ID tells this restore from any other restore into the pod.
	ID string
	// Archive is read to its end, once.
	Archive Parts

	next   *part  // the part to send next; nil if it is not read yet
	ahead  *part  // the part after next; nil if it is not read yet
	offset int64  // of next
	spare  []byte // the buffer of a part that sandboxd has; nil if there is none

	process string // the nonce of the sandboxd process that has restored all files; empty before
}

// Sent returns how many bytes of the archive sandboxd has accepted.
func (r *Restoring) Sent() int64 { return r.offset }

// Restore sends the rest of an archive to the sandboxd of a pod that is not initialised
// yet. It signs the digests with which the parts were kept, and leaves it to sandboxd to
// compare the parts with them: sandboxd accepts no part that is damaged. ErrMore means that a part of the archive is left for another call. Its
// verdict is activation.EndSandbox if the pod cannot be used any more; otherwise the call may
// be tried again. Calls with the same Restoring must not run at once.
func (a *Agent) Restore(ctx context.Context, id string, pod *corev1.Pod, r *Restoring) error {
	c, err := a.reach(pod)
	if err != nil {
		return fmt.Errorf("restore the files of pod %s: %w", pod.Name, err)
	}
	defer c.close()
	sandboxd, err := a.challenge(ctx, c, pod.Labels[v1alpha1.LabelInitKey])
	nonce := sandboxd.Nonce
	if err == nil && sandboxd.Restored == r.ID { // another gateway has completed the restore, or sandboxd's answer was lost
		r.process = nonce
		return nil
	}
	for err == nil {
		if r.next == nil {
			r.next, r.ahead = r.ahead, nil
		}
		if r.next == nil {
			r.next = r.read()
		}
		if err = r.next.err; err != nil {
			err = activation.EndSandbox.With(err)
			break
		}
		wait := r.readAhead()
		var restored bool
		restored, err = a.restorePart(ctx, c, id, pod, nonce, r)
		wait()
		if restored {
			r.process = nonce // sandboxd accepted the signature with this nonce
			return nil
		}
		if err == nil && !r.next.last { // the last part is sent again until sandboxd has written all files
			r.offset += int64(len(r.next.data))
			r.spare, r.next = r.next.data, nil // sandboxd has the whole part: nothing reads the buffer any more
		}
		if err == nil && ctx.Err() != nil {
			err = ErrMore
		}
	}
	if errors.Is(err, errUnsigned) {
		err = activation.EndSandbox.With(err)
	}
	return fmt.Errorf("restore the files of pod %s: %w", pod.Name, err)
}

// part is a piece of an archive.
type part struct {
	data   []byte
	digest [sha256.Size]byte // with which it was kept
	last   bool
	err    error // of reading the part
}

func (p *part) damaged() bool { return sha256.Sum256(p.data) != p.digest }

// read reads the next part.
func (r *Restoring) read() *part {
	buf := r.spare
	if r.spare = nil; buf == nil {
		buf = make([]byte, chunkSize)
	}
	n, digest, last, err := r.Archive.Part(buf[:chunkSize])
	return &part{data: buf[:n], digest: digest, last: last, err: err}
}

// readAhead begins to read the part after the next one while the next one is sent. The
// caller must call wait, which waits for that read, before it uses r again.
func (r *Restoring) readAhead() (wait func()) {
	if r.next.last || r.ahead != nil {
		return func() {}
	}
	ahead := make(chan *part)
	go func() { ahead <- r.read() }()
	return func() { r.ahead = <-ahead }
}

// restorePart sends r.next, and reports whether the whole archive is restored.
func (a *Agent) restorePart(ctx context.Context, c *connection, id string, pod *corev1.Pod, nonce string, r *Restoring) (bool, error) {
	text, err := json.Marshal(map[string]any{"id": r.ID, "offset": r.offset, "last": r.next.last, "emptyDirs": v1alpha1.EmptyDirs(&pod.Spec)})
	if err != nil {
		return false, err
	}
	header := commandHeader(id, string(text))
	if err := a.signNonce(ctx, pod.Labels[v1alpha1.LabelInitKey], header, commandMessage("restore", string(pod.UID), nonce, id, string(text), r.next.digest)); err != nil {
		return false, err
	}
	status, answer, err := c.call(ctx, http.MethodPost, "/restore", header, r.next.data)
	switch {
	case err != nil:
		return false, err
	case status == http.StatusOK:
		return true, nil
	case status == http.StatusAccepted:
		return false, nil
	case status == http.StatusUnauthorized && r.next.damaged():
		return false, activation.EndSandbox.With(errDamaged)
	case lasting(status), status == http.StatusNotImplemented:
		return false, activation.EndSandbox.With(fmt.Errorf("/restore is answered with %d: %s", status, quoted(answer)))
	}
	return false, fmt.Errorf("status %d", status)
}

// quoted returns the beginning of an answer for the log.
func quoted(answer []byte) string {
	const longest = 300
	return fmt.Sprintf("%.*q", longest, answer)
}

// reach connects to the sandboxd of a pod.
func (a *Agent) reach(pod *corev1.Pod) (*connection, error) {
	if !v1alpha1.Freezable(&pod.Spec) {
		return nil, fmt.Errorf("%w: no sandboxd runs alone in it, or it has a liveness probe", ErrNoArchive)
	}
	addr, err := netip.ParseAddr(v1alpha1.RoutableAddress(pod))
	if err != nil {
		return nil, fmt.Errorf("it cannot be reached: %w", err)
	}
	return a.connect(addr), nil
}

func commandHeader(id, arguments string) http.Header {
	header := http.Header{}
	header.Set(sandboxHeader, id)
	header.Set(argumentsHeader, arguments)
	return header
}

func (a *Agent) signCommand(ctx context.Context, c *connection, pod *corev1.Pod, header http.Header, name, id, arguments string, body []byte) error {
	return a.signBy(ctx, c, pod, header, func(nonce string) []byte {
		return commandMessage(name, string(pod.UID), nonce, id, arguments, sha256.Sum256(body))
	})
}

// commandMessage returns the message that is signed for a command; sandboxd/access builds
// the same message to verify the signature.
func commandMessage(name, podUID, nonce, sandbox, arguments string, body [sha256.Size]byte) []byte {
	return fmt.Appendf(nil, "sandlane %s 1\n%q\n%q\n%q\n%q\n%x\n", name, podUID, nonce, sandbox, arguments, body)
}
