package schedule

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watched is a real watch whose events come in their order, and wait until they
// are shown.
type watched struct {
	*realWorld
	known map[types.UID]bool // what the scheduler was told of; the model's goroutine alone

	mu     sync.Mutex
	events []watch.Event // not shown yet; guarded by mu
	broken bool          // the API server ended the watch: only a list helps; guarded by mu
	end    func()        // ends the watch, and returns when its events do not come any more
}

func (w *realWorld) watch() view { return &watched{realWorld: w, known: map[types.UID]bool{}} }

// relist begins anew: what the old watch had not shown is never shown.
func (v *watched) relist(s *PoolScheduler) {
	v.stop()
	list := v.list()
	gone := v.known
	v.known = map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		v.known[pod.UID] = true
		delete(gone, pod.UID)
		s.Offer(pod)
	}
	for uid := range gone {
		s.Forget(uid)
	}
	stream, err := v.direct.Watch(context.Background(), &corev1.PodList{}, client.InNamespace(v.ns),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		v.fail("watching the pods", err)
		return
	}
	ended := make(chan struct{})
	v.end = func() { stream.Stop(); <-ended }
	v.mu.Lock()
	v.events, v.broken = nil, false
	v.mu.Unlock()
	go func() {
		defer close(ended)
		for e := range stream.ResultChan() {
			v.mu.Lock()
			if v.events = append(v.events, e); e.Type == watch.Error {
				v.broken = true
			}
			v.mu.Unlock()
		}
		v.mu.Lock()
		v.broken = true
		v.mu.Unlock()
	}()
}

func (v *watched) stop() {
	if v.end != nil {
		v.end()
		v.end = nil
	}
}

func (v *watched) behind() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.events) > 0 || v.broken
}

func (v *watched) show(n int, s *PoolScheduler) {
	v.mu.Lock()
	n = min(n, len(v.events))
	some, broken := v.events[:n:n], v.broken
	v.events = v.events[n:]
	v.mu.Unlock()
	if broken {
		v.relist(s)
		return
	}
	for _, e := range some {
		pod := e.Object.(*corev1.Pod)
		if e.Type == watch.Deleted {
			delete(v.known, pod.UID)
			s.Forget(pod.UID)
			continue
		}
		v.known[pod.UID] = true
		s.Offer(pod)
	}
}
