package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/console"
	"github.com/sandlane/sandlane/console/processes"
	"github.com/sandlane/sandlane/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// serve serves a console with a configuration and returns its address with the token.
func serve(t *testing.T, cfg *rest.Config, systemNamespace string, find processes.Finder) string {
	t.Helper()
	if find == nil {
		find = func(context.Context) ([]processes.Process, error) { return nil, nil }
	}
	server, err := console.New(console.Options{Config: cfg, SystemNamespace: systemNamespace, Processes: find})
	if err != nil {
		t.Fatal(err)
	}
	l, err := console.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); served.Wait() })
	return server.URL(l.Addr())
}

// patience is for machines that are busy with other tests.
const patience = 2 * time.Minute

// browser is one tab of a Chromium of its own.
type browser struct {
	t   *testing.T
	ctx context.Context
}

func open(t *testing.T, url string) *browser {
	t.Helper()
	bin, err := chromium()
	if err != nil {
		t.Skip(err, "(the console's page is NOT tested)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(bin), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP *."+portDomain+" 127.0.0.1"), chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true),
		chromedp.WindowSize(1200, 800), chromedp.WSURLReadTimeout(patience))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	faults := newFaults(ctx, t)
	t.Cleanup(faults)
	b.do("open the page", chromedp.Navigate(url))
	return b
}

// chromium finds the browser, which may be installed first.
var chromium = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("CHROMIUM_BIN"); bin != "" {
		return bin, nil
	}
	out, err := exec.Command("../../hack/chromium.sh").Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
})

// newFaults notes exceptions, and what the page's policy refuses.
func newFaults(ctx context.Context, t *testing.T) (report func()) {
	var mu sync.Mutex
	var faults []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, text)
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			note(fmt.Sprintf("%+v", e.ExceptionDetails))
		case *cdplog.EventEntryAdded:
			if e.Entry.Source == cdplog.EntrySourceSecurity {
				note(e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if len(faults) > 0 {
			t.Errorf("the page has faults: %v", faults)
		}
	}
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v\npage: %s", what, err, b.text())
	}
}

// click clicks with the mouse what a CSS selector finds, once it is visible and enabled. What is
// replaced meanwhile is looked for again.
func (b *browser) click(selector string) {
	b.t.Helper()
	kubetest.Eventually(b.t, "a click at "+selector, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, patience/4)
		defer cancel()
		return chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector+":not(:disabled)")))
	})
}

// tab opens the n-th table, from 1.
func (b *browser) tab(n int) {
	b.t.Helper()
	b.click(fmt.Sprintf("#tabs button:nth-child(%d)", n))
}

func (b *browser) keys(keys string) {
	b.t.Helper()
	b.do("keys "+keys, chromedp.KeyEvent(keys))
}

func (b *browser) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, patience/2)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

func evaluate[T any](b *browser, code string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](code))
	if err != nil {
		b.t.Fatalf("%s: %v", code, err)
	}
	return v
}

// sees waits until the page shows all of the texts.
func (b *browser) sees(texts ...string) {
	b.t.Helper()
	b.seesWithin(patience, texts...)
}

func (b *browser) seesWithin(limit time.Duration, texts ...string) {
	b.t.Helper()
	kubetest.Within(b.t, limit, "the page", func() error {
		page := b.text()
		for _, text := range texts {
			if !strings.Contains(page, text) {
				return fmt.Errorf("it lacks %q:\n%s", text, page)
			}
		}
		return nil
	})
}

// shotsEnv names the folder for screenshots, such as docs/console; without it there are none.
const shotsEnv = "SANDLANE_SCREENSHOTS"

// shoot takes a screenshot.
func (b *browser) shoot(name string, width, height int64, scheme string) {
	b.t.Helper()
	dir := os.Getenv(shotsEnv)
	if dir == "" {
		return
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.do("resize", chromedp.EmulateViewport(width, height))
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// lease is that of a gateway that renewed it just now, or long ago.
func lease(namespace, name string, ago time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Now().Add(-ago))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelGateway: name}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
	}
}

func poolOf(namespace, name string) *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.SandboxPoolSpec{Replicas: 3, Template: &v1alpha1.SandboxTemplateSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		}}},
	}
}

func sandbox(namespace, pool, id string) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.SandboxSpec{Namespace: namespace, Pool: pool, Team: "blue"}}
}
