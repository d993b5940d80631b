package envoy

import (
	"strings"
	"testing"
	"time"
)

func TestOptionsValidate(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("d", 100)
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string // a part of the error; empty for none
	}{
		"only a run dir":    {func(*Options) {}, ""},
		"no run dir":        {func(o *Options) { o.RunDir = "" }, "must be an absolute path"},
		"relative socket":   {func(o *Options) { o.AdminSocket = "a.sock" }, `admin socket "a.sock" must be an absolute path`},
		"long socket":       {func(o *Options) { o.RunDir = long }, "longer than the 107 bytes"},
		"host name":         {func(o *Options) { o.ListenAddress = "localhost" }, `listen address "localhost" must be an IP address`},
		"IPv6":              {func(o *Options) { o.ListenAddress = "::1" }, ""},
		"negative port":     {func(o *Options) { o.Port = -1 }, "port -1"},
		"port above 65535":  {func(o *Options) { o.Port = 65536 }, "port 65536"},
		"cert without key":  {func(o *Options) { o.CertFile = "/c" }, "a certificate needs its key"},
		"key without cert":  {func(o *Options) { o.KeyFile = "/k" }, "a certificate needs its key"},
		"relative cert":     {func(o *Options) { o.CertFile, o.KeyFile = "c", "k" }, "absolute paths in one folder"},
		"two folders":       {func(o *Options) { o.CertFile, o.KeyFile = "/a/c", "/b/k" }, "absolute paths in one folder"},
		"negative streams":  {func(o *Options) { o.MaxStreams = -1 }, "max streams -1"},
		"negative heap":     {func(o *Options) { o.MaxHeapBytes = -1 }, "max heap -1"},
		"timeout above max": {func(o *Options) { o.MessageTimeout = time.Hour }, "max message timeout"},
		"negative idle":     {func(o *Options) { o.StreamIdleTimeout = -1 }, "stream idle timeout"},
		"negative headers":  {func(o *Options) { o.HeadersTimeout = -1 }, "headers timeout -1ns"},
		"health port alone": {func(o *Options) { o.HealthAddress = ":8081" }, `health address ":8081"`},
		"health":            {func(o *Options) { o.HealthAddress = "[::]:8081" }, ""},
		"negative hops":     {func(o *Options) { o.TrustedHops = -1 }, "trusted hops -1"},
		"many hops":         {func(o *Options) { o.TrustedHops = 11 }, "trusted hops 11"},
		"two seconds":       {func(o *Options) { o.RetransmitMax = DefaultRetransmitMax }, ""},
		"short pauses":      {func(o *Options) { o.RetransmitMax = time.Millisecond }, "retransmit max 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{RunDir: "/run/sandlane"}
			tc.change(&o)
			o.Complete()
			err := o.Validate()
			if tc.want == "" && err != nil {
				t.Fatalf("Validate: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("Validate: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCompleteKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	want := Options{
		RunDir: "/r", ExtProcSocket: "/e", APISocket: "/p", AdminSocket: "/a", NodeID: "n", ListenAddress: "::", Port: 1, MaxStreams: 2,
		MaxHeapBytes: 3, MessageTimeout: 4, MaxMessageTimeout: 5, StreamIdleTimeout: 6, RetransmitMax: 7,
		HealthAddress: "[::1]:2", HeadersTimeout: 8, ConnectionIdleTimeout: 9,
	}
	got := want
	got.Complete()
	if got != want {
		t.Errorf("Complete changed %+v to %+v", want, got)
	}
}

// Envoy's memory holds what it may have open; see TestSlowReadersFitTheHeap.
func TestHeapFollowsStreams(t *testing.T) {
	t.Parallel()
	for streams, want := range map[int]int64{0: 7543 << 20, 2500: 2270 << 20} {
		o := Options{MaxStreams: streams}
		o.Complete()
		if got := o.MaxHeapBytes; got < want-20<<20 || got > want+20<<20 {
			t.Errorf("%d streams: %d MB, want about %d", streams, got>>20, want>>20)
		}
	}
}

func TestFilesAndStreams(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{0: 0, 1000: 0, 1024: 11, 20_000: 8_941, 21_000: 9_411, 1 << 20: 10_000} {
		if got := StreamsFor(files); got != want {
			t.Errorf("StreamsFor(%d) = %d, want %d", files, got, want)
		}
		if got := StreamsFor(files); got > 0 && Files(got) > files {
			t.Errorf("%d streams need %d files, more than %d", got, Files(got), files)
		}
	}
}
