package extproc

import (
	"context"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Check is SERVING only while the gateway is ready, holds its lease and is not
// draining; for every service name alike.
func (s *Server) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if s.Serving() {
		status = healthv1.HealthCheckResponse_SERVING
	}
	return &healthv1.HealthCheckResponse{Status: status}, nil
}

// Serving reports whether the health check says SERVING.
func (s *Server) Serving() bool {
	return !s.draining.Load() && s.o.Lease.Held() && s.o.Ready()
}
