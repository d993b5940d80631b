package keys

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/egress/seal"
	"github.com/sandlane/sandlane/test/bubble"
)

// A process that runs opens what is sealed after any number of rotations at once, and signs
// with the current authority soon after.
func TestFollow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().Build()
		f, err := Follow(t.Context(), c, system, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		first := f.Authority()
		for range 3 {
			if err := Rotate(t.Context(), c, system); err != nil {
				t.Fatal(err)
			}
		}
		public, err := ReadPublic(t.Context(), c, system)
		if err != nil {
			t.Fatal(err)
		}
		place := seal.OfSecret("team", "key")
		sealed, err := public.Seal.Seal(place, []byte("value"))
		if err != nil {
			t.Fatal(err)
		}
		if value, err := f.Open(place, sealed); err != nil || string(value) != "value" {
			t.Errorf("after three rotations: %q, %v", value, err)
		}
		if err := Rotate(t.Context(), c, system); err != nil {
			t.Fatal(err)
		}
		now, err := Load(t.Context(), c, system)
		if err != nil {
			t.Fatal(err)
		}
		if is := f.Authority().Cert; is.Equal(first.Cert) || is.Equal(now.Authority.Cert) {
			t.Error("the authority is the first one still, or the current one already")
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- f.Start(ctx) }()
		time.Sleep(readEvery) // virtual
		synctest.Wait()
		if !f.Authority().Cert.Equal(now.Authority.Cert) {
			t.Error("the authority is not the current one")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What is sealed to a key that is nowhere costs the API server a read a second, however often a
// sandbox asks for it.
func TestUnknownKeyIsLookedForOnceASecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reads := 0
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, into, o...)
			},
		}).Build()
		f, err := Follow(t.Context(), c, system, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		reads = 0
		if _, err := Load(t.Context(), c, system); err != nil {
			t.Fatal(err)
		}
		one := reads
		public, err := ReadPublic(t.Context(), fakeCluster(t), system)
		if err != nil {
			t.Fatal(err)
		}
		place := seal.OfSecret("team", "key")
		foreign, err := public.Seal.Seal(place, []byte("value"))
		if err != nil {
			t.Fatal(err)
		}
		reads = 0
		for second := 1; second <= 3; second++ {
			for range 100 {
				if _, err := f.Open(place, foreign); !errors.Is(err, seal.ErrNoKey) {
					t.Fatalf("%v, want ErrNoKey", err)
				}
			}
			if reads != second*one {
				t.Errorf("%d reads in %d seconds, want %d", reads, second, second*one)
			}
			time.Sleep(readPause) // virtual
		}
	})
}

// fakeCluster is another cluster, with keys of its own.
func fakeCluster(t *testing.T) client.Client {
	t.Helper()
	c := fake.NewClientBuilder().Build()
	if _, err := Load(t.Context(), c, system); err != nil {
		t.Fatal(err)
	}
	return c
}
