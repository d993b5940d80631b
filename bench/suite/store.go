package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/kubetest"
)

// perTransaction is below etcd's limit of operations, and of bytes.
const perTransaction = 100

// put is an operation of etcd's JSON interface; both texts are base64 there.
type put struct {
	Request struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"request_put"`
}

// pods encodes pods. It is made once, since making a scheme takes longer than encoding many
// pods.
var pods = sync.OnceValue(func() *protobuf.Serializer {
	scheme := kubetest.Scheme()
	return protobuf.NewSerializer(scheme, scheme)
})

// stored encodes an object as the API server does for etcd.
func stored(o runtime.Object) (put, error) {
	var (
		p    put
		text bytes.Buffer
		err  error
	)
	switch o := o.(type) {
	case *corev1.Pod:
		p.Request.Key = []byte("/registry/pods/" + o.Namespace + "/" + o.Name)
		err = pods().Encode(o, &text)
	case *v1alpha1.Sandbox:
		p.Request.Key = []byte("/registry/" + v1alpha1.GroupVersion.Group + "/sandboxes/" + o.Name)
		err = json.NewEncoder(&text).Encode(o)
	default:
		err = fmt.Errorf("a %T is not stored by hand", o)
	}
	p.Request.Value = text.Bytes()
	return p, err
}

// storeFleet writes sandboxes b<from> to b<to-1> and their pods directly into etcd, which the
// API server sees like writes of another API server. A hundred thousand take seconds, where
// as many creates would take minutes. Objects whose writes are timed are never written this
// way.
func (c *Cluster) storeFleet(ctx context.Context, from, to int) error {
	batches := (to - from + perTransaction/2 - 1) / (perTransaction / 2)
	if batches <= 0 {
		return nil
	}
	err := Each(ctx, batches, func(ctx context.Context, batch int) error {
		var puts []put
		first := from + batch*perTransaction/2
		for i := first; i < min(first+perTransaction/2, to); i++ {
			id := fmt.Sprintf("b%d", i)
			for _, o := range []runtime.Object{RunningPod(id, i), RunningSandbox(id, i)} {
				p, err := stored(o)
				if err != nil {
					return fmt.Errorf("encode an object for etcd: %w", err)
				}
				puts = append(puts, p)
			}
		}
		return c.transact(ctx, puts)
	})
	if err != nil {
		return err
	}
	// Make the API server read them now, so that this work is in no measurement.
	cached := &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}}
	return Await(ctx, func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("b%d", to-1)}, &v1alpha1.Sandbox{}, cached)
		if err == nil {
			err = c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: podName(to - 1)}, &corev1.Pod{}, cached)
		}
		return err
	})
}

func (c *Cluster) transact(ctx context.Context, puts []put) error {
	body, err := json.Marshal(map[string]any{"success": puts})
	if err != nil {
		return fmt.Errorf("encode a transaction of etcd: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	var seen struct{ Succeeded bool }
	if err := json.Unmarshal(answer, &seen); err != nil || !seen.Succeeded {
		return fmt.Errorf("write to etcd: %s: %s", resp.Status, answer)
	}
	return nil
}
