package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console/explain"
	"github.com/sandlane/sandlane/console/processes"
)

const (
	// logLines is how much of each log is kept.
	logLines = 20_000
	// pageSize is how many objects are read and held at once; each page is a file.
	pageSize = 500
)

// kind is one kind of object that is kept.
type kind struct {
	name    string // of its file
	list    func() client.ObjectList
	options []client.ListOption
}

// kinds are the objects that are kept.
func kinds(systemNamespace string) []kind {
	sandboxes := func() client.ObjectList { return &v1alpha1.SandboxList{} }
	pools := func() client.ObjectList { return &v1alpha1.SandboxPoolList{} }
	envs := func() client.ObjectList { return &v1alpha1.SandboxEnvList{} }
	templates := func() client.ObjectList { return &v1alpha1.SandboxTemplateList{} }
	builds := func() client.ObjectList { return &v1alpha1.TemplateBuildList{} }
	checkpoints := func() client.ObjectList { return &v1alpha1.CheckpointList{} }
	pods := func() client.ObjectList { return &corev1.PodList{} }
	leases := func() client.ObjectList { return &coordinationv1.LeaseList{} }
	events := func() client.ObjectList { return &corev1.EventList{} }
	system := []client.ListOption{client.InNamespace(systemNamespace)}
	return []kind{
		{"sandboxes", sandboxes, nil},
		{"pools", pools, nil},
		{"envs", envs, nil},
		{"templates", templates, nil},
		{"builds", builds, nil},
		{"checkpoints", checkpoints, nil},
		{"pool-pods", pods, []client.ListOption{client.HasLabels{v1alpha1.LabelPool}}},
		{"system-pods", pods, system},
		{"leases", leases, system},
		{"events", events, nil}, // after the pods, which say which Events are kept
	}
}

// Write writes the archive, a gzipped tar. What could not be read is in its unread.txt; an
// error is out's, or the context's.
func Write(ctx context.Context, from explain.Reader, version string, out io.Writer) error {
	compressed := gzip.NewWriter(out)
	b := &bundle{ctx: ctx, pods: map[types.UID]bool{}, tar: tar.NewWriter(compressed), now: time.Now()}
	b.add("version.txt", []byte(version+"\n"))
	b.add("explain.txt", []byte(redact(explain.Text(explain.Check(from.Installation(ctx))))))
	for _, k := range kinds(from.SystemNamespace) {
		b.objects(from.API, k)
	}
	all, err := from.Processes(ctx)
	b.note("gateways and controllers", err)
	for _, p := range all {
		b.process(p)
	}
	b.add("unread.txt", []byte(strings.Join(b.unread, "\n")+"\n"))
	return errors.Join(b.err, ctx.Err(), b.tar.Close(), compressed.Close())
}

// keep leaves out Events of what is no business of this project: it keeps those about its
// objects and about the pods that were kept before. Of why a build failed it keeps the
// beginning: what the build printed may follow.
func (b *bundle) keep(o runtime.Object) bool {
	switch o := o.(type) {
	case *corev1.Pod:
		b.pods[o.UID] = true
	case *v1alpha1.TemplateBuild:
		o.Status.Message, _, _ = strings.Cut(o.Status.Message, ": ")
	case *corev1.Event:
		return b.pods[o.InvolvedObject.UID] || strings.HasPrefix(o.InvolvedObject.APIVersion, v1alpha1.GroupVersion.Group+"/")
	}
	return true
}

type bundle struct {
	ctx    context.Context
	pods   map[types.UID]bool
	tar    *tar.Writer
	now    time.Time
	unread []string
	err    error // of the archive
}

func (b *bundle) note(what string, err error) {
	if err != nil {
		b.unread = append(b.unread, what+": "+redact(err.Error()))
	}
}

func (b *bundle) add(name string, text []byte) {
	if b.err != nil {
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: "sandlane-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now})
	if b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// objects writes all objects of a kind, a page a file.
func (b *bundle) objects(api client.Reader, k kind) {
	for page, next := 1, ""; page == 1 || next != ""; page++ {
		list, name := k.list(), k.name
		if page > 1 {
			name += "-" + strconv.Itoa(page)
		}
		if err := api.List(b.ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)}, k.options...)...); err != nil {
			b.note(name, err)
			return
		}
		b.page(name, list)
		next = list.GetContinue()
	}
}

func (b *bundle) page(name string, list client.ObjectList) {
	all := []any{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if !b.keep(o) {
			return nil
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, scrub(object))
		return nil
	})
	b.note(name, err)
	text, err := yaml.Marshal(all)
	b.note(name, err)
	b.add("objects/"+name+".yaml", text)
}

func (b *bundle) process(p processes.Process) {
	file := strings.ReplaceAll(p.Name, "/", "_")
	text, err := p.ReadLog(b.ctx, logLines)
	b.note("log of "+p.Name, err)
	if err == nil {
		b.add("logs/"+file+".log", []byte(redact(string(text))))
	}
	if p.ReadMetrics == nil {
		return
	}
	for suffix, path := range map[string]string{"": "/metrics", "-envoy": "/metrics/envoy"} {
		if suffix != "" && !p.Gateway {
			continue
		}
		text, err := p.ReadMetrics(b.ctx, path)
		b.note("metrics of "+p.Name, err)
		if err == nil {
			b.add("metrics/"+file+suffix+".txt", text)
		}
	}
}
