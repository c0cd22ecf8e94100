package server

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/gateway"
	"github.com/tidings-project/tidings/outbox"
)

// newGateway makes the gateway with a bus of its own. It also hears what wakes the workers, because an application that posts a message
// wakes by the same call.
func (s *Server) newGateway(registry *prometheus.Registry) (*gateway.Gateway, error) {
	id := gatewayID()
	c := s.cfg
	g, err := gateway.New(gateway.Config{Store: s.store, Verifier: s.tokens, ID: id,
		Bus:     bus.New(bus.Config{Conn: s.store.Pool().Config().ConnConfig, Sender: id, Also: outbox.WakeChannel, Log: s.log}),
		Origins: c.Origins, Logger: s.log, Registerer: registry, MaxConnections: c.GatewayConnections, MaxPerUser: c.GatewayPerUser,
		Rate: c.GatewayRate, Burst: int(2*c.GatewayRate + 1), PingEvery: c.GatewayPing, PongWait: min(c.GatewayPing, gateway.PongWait), DrainFor: c.GatewayDrain, Lease: c.GatewayLease, Batch: c.GatewayBatch})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return g, nil
}

// gatewayID names a gateway for people and is new with each start, so that what another process had under it is never taken for its own.
func gatewayID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	host, _, _ = strings.Cut(host, ".")
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
