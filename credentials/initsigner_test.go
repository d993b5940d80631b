package credentials

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sandlane/sandlane/test/kubetest"
)

// While the API server is away a key that was known goes on working; of one that is
// not it cannot be said that it is wrong.
func TestInitKeysWhileTheAPIServerIsAway(t *testing.T) {
	ns, away := kubetest.Namespace(t), errors.New("away")
	gone := false
	c := interceptor.NewClient(kubetest.Client(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if gone {
				return away
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	k := NewInitSigner(c, ns)
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	current := k.keys.Load().Current().ID
	gone = true
	if _, ok, err := k.Sign(t.Context(), current, nil); !ok || err != nil {
		t.Errorf("the current key: %v, %v", ok, err)
	}
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || !errors.Is(err, away) {
		t.Errorf("an unknown key: %v, %v", ok, err)
	}
	gone = false
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || err != nil {
		t.Errorf("an unknown key when the API server is back: %v, %v", ok, err)
	}
	gone = true // what was just read is not read again
	k.read = k.read.Add(time.Hour)
	if _, ok, err := k.Sign(t.Context(), "unknown", nil); ok || err != nil {
		t.Errorf("an unknown key a moment later: %v, %v", ok, err)
	}
}
