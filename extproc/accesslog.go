package extproc

import (
	"time"

	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StreamAccessLogs takes Envoy's access log: failures of upstreams, whose
// routes it drops, ends of long streams, which it notes as use, and errors that Envoy
// answered. Envoy keeps
// the stream open for good; it ends when the server stops.
func (s *Server) StreamAccessLogs(stream accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	done := make(chan error, 1)
	go func() { done <- s.readAccessLogs(stream) }()
	select {
	case err := <-done:
		return err
	case <-s.stop: // returning cancels the stream, which ends the reader
		return status.Error(codes.Unavailable, "the gateway is stopping")
	}
}

func (s *Server) readAccessLogs(stream accesslogv3.AccessLogService_StreamAccessLogsServer) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.recovered(v)
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			s.logRejection(e)
			s.logEntry(e.GetCommonProperties(), time.Now())
		}
	}
}

// logEntry acts on one entry. The claim in it is compared with the cached
// route's: a late entry must not touch the sandbox's next pod.
func (s *Server) logEntry(p *dataaccesslogv3.AccessLogCommon, now time.Time) {
	fields := p.GetMetadata().GetFilterMetadata()[MetadataNamespace].GetFields()
	id, claim := fields[MetadataSandboxID].GetStringValue(), fields[metadataClaim].GetStringValue()
	if id == "" || claim == "" {
		return
	}
	flags := p.GetResponseFlags()
	if flags.GetUpstreamConnectionFailure() || flags.GetUpstreamConnectionTermination() || flags.GetNoHealthyUpstream() || fields[MetadataBroken] != nil {
		s.metrics.dropped.Inc()
		switch r := s.o.Cache.Get(id); {
		case r == nil: // dropped already, or evicted
			s.failedUpstreams.mark(id, now)
		case r.ClaimID == claim:
			s.failedUpstreams.mark(id, now) // before Drop: the next miss must see it
			s.o.Cache.Drop(r)
		}
	}
	s.o.Activity.StreamEnded(id, claim, endOf(p, now))
}

// endOf returns when the request ended, by Envoy's clock; now if the entry does not
// say so, or if that time is later than now.
func endOf(p *dataaccesslogv3.AccessLogCommon, now time.Time) time.Time {
	if p.GetStartTime() == nil || p.GetDuration() == nil {
		return now
	}
	end := p.GetStartTime().AsTime().Add(p.GetDuration().AsDuration())
	if end.After(now) {
		return now
	}
	return end
}
