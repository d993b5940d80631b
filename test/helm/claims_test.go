package helm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlane/sandlane/api/v1alpha1"
	"github.com/sandlane/sandlane/test/result"
)

// resultEnv is the variable with the file into which timeClaims writes its figures, for the
// page of figures (sandlane-bench render).
const resultEnv = "SANDLANE_NODE_RESULT"

// claimTimes are times in milliseconds.
type claimTimes struct {
	Claims        []float64 // a first request that a warm pod answers
	CreatedToIdle []float64 // from a pod's creation until it is idle
	EndedToIdle   []float64 // from a sandbox's end until its pool has an idle pod again
}

// stock follows the pods of one pool by a watch.
type stock struct {
	events  watch.Interface
	created map[types.UID]time.Time
	idle    map[types.UID]bool
	times   *claimTimes
}

// next waits for a pod that turns idle.
func (s *stock) next(ctx context.Context) error {
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for an idle pod: %w", ctx.Err())
		case event = <-s.events.ResultChan():
		}
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("the watch of pods has ended: %v", event.Object)
		}
		now, phase := time.Now(), v1alpha1.PhaseOf(pod)
		if event.Type == watch.Added && phase != v1alpha1.PodIdle {
			s.created[pod.UID] = now
		}
		if event.Type == watch.Deleted || phase != v1alpha1.PodIdle || s.idle[pod.UID] {
			continue
		}
		s.idle[pod.UID] = true
		if began, ok := s.created[pod.UID]; ok {
			s.times.CreatedToIdle = append(s.times.CreatedToIdle, milliseconds(now.Sub(began)))
		}
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// timeRounds is a client: it claims the pod of a pool and ends its sandbox, again and
// again. Its arguments are the gateways' URL, a file with an API key, the pool, and
// how often.
func timeRounds(ctx context.Context, args []string) (any, error) {
	url, pool := args[0], args[2]
	key, err := os.ReadFile(args[1])
	rounds, countErr := strconv.Atoi(args[3])
	config, configErr := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err := errors.Join(err, countErr, configErr); err != nil {
		return nil, err
	}
	api, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, err
	}
	events, err := api.Watch(ctx, &corev1.PodList{}, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelPool: pool})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	times := &claimTimes{}
	s := &stock{events: events, created: map[types.UID]time.Time{}, idle: map[types.UID]bool{}, times: times}
	if err := s.next(ctx); err != nil {
		return nil, err
	}
	for n := range rounds {
		id := "timed-" + strconv.Itoa(n)
		began := time.Now()
		target := map[string]string{"X-Sandbox-Id": id, "X-Sandbox-Port": "8000", "X-Sandbox-Pool": "default/" + pool}
		if err := answered(ctx, http.MethodGet, url+"/", http.StatusOK, target); err != nil {
			return nil, err
		}
		times.Claims = append(times.Claims, milliseconds(time.Since(began)))
		began = time.Now()
		if err := answered(ctx, http.MethodDelete, url+"/sandboxes/"+id, http.StatusNoContent, map[string]string{"X-API-Key": strings.TrimSpace(string(key))}); err != nil {
			return nil, err
		}
		if err := s.next(ctx); err != nil {
			return nil, err
		}
		times.EndedToIdle = append(times.EndedToIdle, milliseconds(time.Since(began)))
	}
	return times, nil
}

// answered sends a request and reads the whole answer, whose status must be want.
func answered(ctx context.Context, method, url string, want int, headers map[string]string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s is answered with %d: %s", method, url, resp.StatusCode, text)
	}
	return err
}

// timeClaims times claims of a warm pod, and how soon there is another one: the pool may have
// only one pod, so the next pod is made once the one before is gone. It judges no figure.
func (c *cluster) timeClaims(t *testing.T) {
	const rounds = 15
	c.apply(t, strings.Replace(fmt.Sprintf(sandboxPool, "timed", "sandlane-test-echo:test"), `"replicas":1,`, `"replicas":1,"maxPods":1,`, 1))
	c.idlePod(t, "timed")
	r := &result.Result{Started: time.Now().UTC(), Plan: "node", Version: result.Output(c.sandlane, "version"), Machine: result.ThisMachine()}
	var times claimTimes
	c.startClient(t, "claims", c.gateway(t), c.keyFile(t), "timed", strconv.Itoa(rounds)).wait(t, &times)
	r.Took = time.Since(r.Started).Round(time.Second).String()
	for _, of := range []struct {
		row string
		ms  []float64
	}{{result.NodeClaim, times.Claims}, {result.NodeCreatedToIdle, times.CreatedToIdle}, {result.NodeEndedToIdle, times.EndedToIdle}} {
		if len(of.ms) < rounds {
			t.Fatalf("%s: %d times, want %d", of.row, len(of.ms), rounds)
		}
		row := r.Add(of.row, "ms", "less", of.ms...)
		fmt.Printf("      %-40s median %7.1f ms\n", of.row, row.Summary().Median)
	}
	if file := os.Getenv(resultEnv); file != "" {
		if err := r.Save(file); err != nil {
			t.Error(err)
		}
	}
	c.kubectl(t, "delete", "sandboxpool", "timed", "--timeout=60s")
}
