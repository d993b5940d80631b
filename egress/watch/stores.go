package watch

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandlane/sandlane/api/v1alpha1"
)

// podStore lets a Reflector of pods feed the state.
type podStore struct{ *state }

func (s podStore) Add(obj any) error { return s.Update(obj) }

func (s podStore) Update(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seePod(pod)
	return nil
}

func (s podStore) Delete(obj any) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropPod(string(pod.UID))
	return nil
}

func (s podStore) Replace(objs []any, rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := map[string]bool{}
	for _, obj := range objs {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return errType
		}
		listed[string(pod.UID)] = true
	}
	for uid := range s.pods { // first, so that an address has no two pods
		if !listed[uid] {
			s.dropPod(uid)
		}
	}
	for _, obj := range objs {
		s.seePod(obj.(*corev1.Pod))
	}
	s.podsSeen(rv)
	if !s.listed.pods {
		s.listed.pods = true
		close(s.podsListed)
	}
	return nil
}

func (podStore) Resync() error { return nil }

// UpdateResourceVersion is called once an event or a bookmark was applied.
func (s podStore) UpdateResourceVersion(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podsSeen(rv)
}

// podsSeen tells the table how far the watch has come. mu is held.
func (s *state) podsSeen(rv string) {
	if n, err := strconv.ParseUint(rv, 10, 64); err == nil {
		s.table.PodsSeen(n)
	}
}

// sandboxStore does the same for sandboxes.
type sandboxStore struct{ *state }

func (s sandboxStore) Add(obj any) error { return s.Update(obj) }

func (s sandboxStore) Update(obj any) error {
	x, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeSandbox(x)
	return nil
}

func (s sandboxStore) Delete(obj any) error {
	x, ok := obj.(*v1alpha1.Sandbox)
	if !ok {
		return errType
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSandbox(x.Name)
	return nil
}

func (s sandboxStore) Replace(objs []any, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := map[string]bool{}
	for _, obj := range objs {
		x, ok := obj.(*v1alpha1.Sandbox)
		if !ok {
			return errType
		}
		listed[x.Name] = true
		s.seeSandbox(x)
	}
	for id := range s.sandboxes {
		if !listed[id] {
			s.dropSandbox(id)
		}
	}
	if !s.listed.sandboxes {
		s.listed.sandboxes = true
		close(s.sandboxesListed)
	}
	return nil
}

func (sandboxStore) Resync() error { return nil }
