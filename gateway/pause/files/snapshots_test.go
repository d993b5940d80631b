package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/checkpoint"
	"github.com/sandlane/sandlane/gateway/activation"
	"github.com/sandlane/sandlane/gateway/restapi"
	"github.com/sandlane/sandlane/gateway/sandboxdclient"
	"github.com/sandlane/sandlane/routecache"
	"github.com/sandlane/sandlane/routing"
)

var errQuota = errors.New("exceeded quota")

var alpha = routing.KeyOwner{Team: "alpha", Namespace: "ns", KeyID: "k1"}

// world is an API server, a pod's sandboxd and a store.
type world struct {
	t        *testing.T
	client   client.Client
	sandbox  *v1alpha1.Sandbox
	pod      *corev1.Pod
	folder   *checkpoint.Folder
	x        *Snapshots
	patched  func()       // before each write of a status
	archived func()       // before files are read
	listed   func()       // after each list
	quota    bool         // no object may be made any more
	uids     atomic.Int64 // objects that were created

	files    io.Reader // that an archive has
	refuses  error
	restores error
	restored []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, files: strings.NewReader("files")}
	w.sandbox = &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "i0", UID: "u1"}}
	w.sandbox.Spec.Namespace, w.sandbox.Spec.Pool = "ns", "base"
	w.sandbox.Spec.Binding = &v1alpha1.Binding{ClaimID: "c1", PodName: "p1", PodUID: "pu1"}
	w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p1", UID: "pu1", Labels: map[string]string{
		v1alpha1.LabelSandboxID: "i0", v1alpha1.LabelPhase: string(v1alpha1.PodRunning), v1alpha1.LabelPool: "base",
	}, Annotations: map[string]string{v1alpha1.AnnotationClaim: "c1", v1alpha1.AnnotationAddress: "10.0.0.1", v1alpha1.AnnotationTemplateHash: "h"}}}
	w.pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	w.pod.Status.PodIP, w.pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	w.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ImageID: "sha256:1"}}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Checkpoint{}).WithObjects(w.pod).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if w.quota {
					return errQuota
				}
				obj.SetUID(types.UID(fmt.Sprintf("uid-%d", w.uids.Add(1))))
				return c.Create(ctx, obj, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if w.listed != nil {
					w.listed()
				}
				return err
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				err := c.Patch(ctx, obj, patch, opts...)
				if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // a test of the patch failed
					err = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: err.Error()}}
				}
				return err
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if w.patched != nil {
					w.patched()
				}
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	var err error
	if w.folder, err = checkpoint.OpenFolder(t.TempDir(), 1000); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.folder.Close() })
	cache := routecache.New(10)
	cache.PodsSeen(1 << 40)
	w.x = New(Options{
		API: w.client, Live: w, Pods: sandboxdclient.NewPods(w.client, cache), Agent: w, Store: w.folder,
		Exceeded: func(err error) bool { return errors.Is(err, errQuota) }, Metrics: NewMetrics(nil), Log: slog.New(slog.DiscardHandler),
	})
	return w
}

// tellNoImage has the pod's node tell no digest.
func (w *world) tellNoImage() {
	w.t.Helper()
	w.pod.Status.ContainerStatuses[0].ImageID = ""
	if err := w.client.Status().Update(w.t.Context(), w.pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Sandbox(_ context.Context, _, id string) (*v1alpha1.Sandbox, error) {
	if id != w.sandbox.Name {
		return nil, nil
	}
	return w.sandbox.DeepCopy(), nil
}

func (w *world) Archive(_ context.Context, id string, pod *corev1.Pod) (io.ReadCloser, error) {
	if w.archived != nil {
		w.archived()
	}
	if id != "i0" || pod.UID != "pu1" {
		w.t.Errorf("the files of %s were read in %s", id, pod.UID)
	}
	return io.NopCloser(w.files), w.refuses
}

func (w *world) Restore(_ context.Context, id string, pod *corev1.Pod, r *sandboxdclient.Restoring) error {
	if err := w.restores; err != nil {
		return err
	}
	data, err := readParts(r.Archive)
	w.restored = append(w.restored, fmt.Sprintf("%s %s %s", id, pod.UID, data))
	return err
}

// readParts reads an archive as sandboxdclient.Agent and sandboxd do.
func readParts(archive sandboxdclient.Parts) (data []byte, err error) {
	buf := make([]byte, checkpoint.PartSize)
	for {
		n, digest, last, err := archive.Part(buf)
		if err == nil && sha256.Sum256(buf[:n]) != digest {
			err = activation.EndSandbox.With(errors.New("the part is damaged"))
		}
		data = append(data, buf[:n]...)
		if last || err != nil {
			return data, err
		}
	}
}

// objects are the Checkpoints that are there and not being deleted.
func (w *world) objects() (all []v1alpha1.Checkpoint) {
	w.t.Helper()
	var list v1alpha1.CheckpointList
	if err := w.client.List(w.t.Context(), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, cp := range list.Items {
		if cp.DeletionTimestamp == nil {
			all = append(all, cp)
		}
	}
	return all
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	made, err := w.x.Create(t.Context(), alpha, "i0", []string{"first"})
	if err != nil {
		t.Fatal(err)
	}
	cp := w.objects()[0]
	if made.ID != cp.Name || made.Pool != "base" || made.SandboxID != "i0" || fmt.Sprint(made.Names) != "[first]" || !strings.HasPrefix(made.ID, "s") {
		t.Errorf("%+v", made)
	}
	if cp.Annotations[v1alpha1.AnnotationOwner] != "k1" || cp.Finalizers[0] != v1alpha1.FinalizerCheckpoint ||
		cp.Spec.SandboxUID != "u1" || cp.Spec.ClaimID != "c1" || cp.Spec.Cause != v1alpha1.CheckpointSnapshot {
		t.Errorf("%+v", cp)
	}
	s := cp.Status
	if s.Phase != v1alpha1.CheckpointSucceeded || s.CheckpointID != cp.Name || s.Bytes != 5 || s.Images["main"] != "sha256:1" || s.TemplateHash != "h" || s.CompletedAt == nil {
		t.Errorf("%+v", s)
	}
	r, info, err := w.folder.Get(t.Context(), string(cp.UID))
	if err != nil || info.Digest != s.Digest {
		t.Fatalf("%+v, %v", info, err)
	}
	_ = r.Close()
	for _, namespace := range []string{"ns", "other"} {
		all, err := w.x.List(t.Context(), namespace)
		_, getErr := w.x.Get(t.Context(), namespace, made.ID)
		if ours := namespace == "ns"; err != nil || (len(all) == 1) != ours || (getErr == nil) != ours || !ours && !errors.Is(getErr, restapi.ErrNoSnapshot) {
			t.Errorf("%s: %v, %v, %v", namespace, all, err, getErr)
		}
	}
	if err := w.x.Delete(t.Context(), "other", made.ID); !errors.Is(err, restapi.ErrNoSnapshot) {
		t.Errorf("by another namespace: %v", err)
	}
	for i, want := range []error{nil, restapi.ErrNoSnapshot} {
		if err := w.x.Delete(t.Context(), "ns", made.ID); !errors.Is(err, want) {
			t.Errorf("deletion %d: %v", i, err)
		}
	}
}

// A snapshot that fails leaves no object, and for a sandbox that does not run none is
// created.
func TestCreateFailures(t *testing.T) {
	broken := errors.New("broken off")
	for name, tc := range map[string]struct {
		change func(w *world)
		id     string
		want   error
	}{
		"unknown":            {id: "i1", want: restapi.ErrNotFound},
		"another namespace":  {change: func(w *world) { w.sandbox.Spec.Namespace = "other" }, want: restapi.ErrNotFound},
		"ended":              {change: func(w *world) { w.sandbox.Spec.End = &v1alpha1.End{} }, want: restapi.ErrNotFound},
		"paused":             {change: func(w *world) { w.sandbox.Spec.Paused = true }, want: restapi.ErrNotRunning},
		"about to be paused": {change: func(w *world) { w.sandbox.Spec.Release = &v1alpha1.Release{} }, want: restapi.ErrNotRunning},
		"an unknown image":   {change: func(w *world) { w.tellNoImage() }, want: restapi.ErrInvalid},
		"without a pod":      {change: func(w *world) { w.sandbox.Spec.Binding = nil }, want: restapi.ErrNotRunning},
		"another claim":      {change: func(w *world) { w.sandbox.Spec.Binding.ClaimID = "c2" }, want: restapi.ErrNotRunning},
		"too large":          {change: func(w *world) { w.files = strings.NewReader(strings.Repeat("x", 1001)) }, want: restapi.ErrSnapshotTooLarge},
		"broken off":         {change: func(w *world) { w.files = io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)) }, want: broken},
		"no freezer":         {change: func(w *world) { w.refuses = sandboxdclient.ErrNoArchive }, want: restapi.ErrInvalid},
		"read already":       {change: func(w *world) { w.refuses = sandboxdclient.ErrBusy }, want: restapi.ErrSnapshotting},
		"not initialised":    {change: func(w *world) { w.refuses = sandboxdclient.ErrNotInitialised }, want: restapi.ErrNotRunning},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := "i0"
			if tc.id != "" {
				id = tc.id
			}
			if tc.change != nil {
				tc.change(w)
			}
			if _, err := w.x.Create(t.Context(), alpha, id, nil); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if left := w.objects(); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
			if kept, err := w.folder.List(t.Context()); err != nil || len(kept) > 0 {
				t.Errorf("kept: %+v, %v", kept, err)
			}
		})
	}
}

// While the Checkpoint is being made the sandbox may end, be paused, or get another pod. Then
// no pod is asked for files, since its address may serve another sandbox.
func TestCreateLooksAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Sandbox) // nil: it runs in the other pod
		want   error
	}{
		"ended":       {func(s *v1alpha1.Sandbox) { s.Spec.End = &v1alpha1.End{} }, restapi.ErrNotFound},
		"paused":      {func(s *v1alpha1.Sandbox) { s.Spec.Paused = true }, restapi.ErrNotRunning},
		"another pod": {nil, restapi.ErrNotRunning},
		"made anew":   {func(s *v1alpha1.Sandbox) { s.UID = "u2" }, restapi.ErrNotRunning},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			second := w.pod.DeepCopy()
			second.Name, second.ResourceVersion = "p2", ""
			second.Annotations[v1alpha1.AnnotationClaim] = "c2"
			if err := w.client.Create(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			read := false
			w.archived = func() { read = true }
			w.patched = func() {
				if tc.change != nil {
					tc.change(w.sandbox)
				} else {
					w.sandbox.Spec.Binding = &v1alpha1.Binding{ClaimID: "c2", PodName: "p2", PodUID: string(second.UID)}
				}
			}
			if _, err := w.x.Create(t.Context(), alpha, "i0", nil); !errors.Is(err, tc.want) || read {
				t.Errorf("%v, want %v; files read: %v", err, tc.want, read)
			}
			if left := w.objects(); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
		})
	}
}

// A Checkpoint that the controller gave up meanwhile does not succeed after all.
func TestGivenUpMeanwhile(t *testing.T) {
	w := newWorld(t)
	writes := 0
	w.patched = func() {
		if writes++; writes != 2 { // the one that says that it has succeeded
			return
		}
		cp := w.objects()[0]
		cp.Status.Phase = v1alpha1.CheckpointFailed
		if err := w.client.Status().Update(t.Context(), &cp); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.x.Create(t.Context(), alpha, "i0", nil); !errors.Is(err, errGivenUp) {
		t.Errorf("%v", err)
	}
	if all, err := w.x.List(t.Context(), "ns"); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// A snapshot goes into pods of its images alone, once into each, and whole.
func TestRestorer(t *testing.T) {
	w := newWorld(t)
	made, err := w.x.Create(t.Context(), alpha, "i0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.x.Restorer(t.Context(), "other", made.ID); !errors.Is(err, restapi.ErrNoSnapshot) {
		t.Errorf("of another namespace: %v", err)
	}
	r, err := w.x.Restorer(t.Context(), "ns", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "i9"}}
	other := w.pod.DeepCopy()
	other.Status.ContainerStatuses[0].ImageID = "sha256:2"
	if err := r.Ready(t.Context(), s, other); !errors.Is(err, ErrMismatch) || activation.VerdictOf(err) != activation.EndSandbox {
		t.Errorf("another image: %v", err)
	}
	other.UID, other.Status.ContainerStatuses = "pu2", nil
	if err := r.Ready(t.Context(), s, other); !errors.Is(err, ErrMismatch) {
		t.Errorf("an image that is not told: %v", err)
	}
	untold, of := w.pod.DeepCopy(), *r
	untold.Status.ContainerStatuses[0].ImageID = ""
	of.cp = of.cp.DeepCopy()
	of.cp.Status.Images = v1alpha1.ImageDigests(untold)
	if err := of.Ready(t.Context(), s, untold); !errors.Is(err, ErrMismatch) {
		t.Errorf("an image that was not told at the snapshot either: %v", err)
	}
	w.restores = sandboxdclient.ErrMore
	if err := r.Ready(t.Context(), s, w.pod); activation.VerdictOf(err) != activation.TryNow {
		t.Errorf("not all at once: %v", err)
	}
	w.restores = errors.New("no answer")
	if err := r.Ready(t.Context(), s, w.pod); !errors.Is(err, w.restores) || activation.VerdictOf(err) == activation.TryNow {
		t.Errorf("no answer: %v", err)
	}
	w.restores = nil
	second := w.pod.DeepCopy()
	second.UID = "pu3"
	for _, pod := range []*corev1.Pod{w.pod, w.pod, second} { // the second time it is done
		if err := r.Ready(t.Context(), s, pod); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(w.restored); got != "[i9 pu1 files i9 pu3 files]" {
		t.Errorf("restored %s", got)
	}
	if err := w.folder.Delete(t.Context(), string(w.objects()[0].UID)); err != nil {
		t.Fatal(err)
	}
	third := w.pod.DeepCopy()
	third.UID = "pu4"
	if err := r.Ready(t.Context(), s, third); activation.VerdictOf(err) != activation.EndSandbox {
		t.Errorf("data that is lost: %v", err)
	}
}
