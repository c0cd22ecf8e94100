// Wires the gateway and the bus.

package server

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/gateway"
	"github.com/tidings-project/tidings/internal/wire"
	"github.com/tidings-project/tidings/outbox"
)

// newGateway makes the gateway with a bus of its own. It also hears what wakes the workers, because an application that posts a message
// wakes by the same call.
func (s *Server) newGateway(registry *prometheus.Registry) (*gateway.Gateway, error) {
	id := processID("gateway")
	c := s.cfg
	g, err := gateway.New(gateway.Config{Store: s.sockets, Lineage: s.lineage, Verifier: s.tokens, ID: id,
		Bus:     bus.New(bus.Config{Conn: s.store.Pool().Config().ConnConfig, Sender: id, Also: outbox.WakeChannel, Log: s.log}),
		Origins: c.Origins, Logger: s.log, Registerer: registry, MaxConnections: c.GatewayConnections, MaxPerUser: c.GatewayPerUser,
		Rate: c.GatewayRate, Burst: int(2*c.GatewayRate + 1), PingEvery: c.GatewayPing, PongWait: min(c.GatewayPing, gateway.PongWait), DrainFor: c.GatewayDrain, Lease: c.GatewayLease, Batch: c.GatewayBatch, Resend: c.resendFor()})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return g, nil
}

// readMoved tells the user's devices how far the user has read by HTTP.
func (s *Server) readMoved(user string, now wire.ReadState) {
	s.telling.Tell(bus.Item{Cursor: &bus.Cursor{User: user, Conv: now.Conv, Epoch: now.Epoch, Read: now.Seq, Unread: now.Unread, More: now.UnreadMore}})
}

// processID names a part of this process for people and is new with each start, so that what another process had under it is never taken for its own.
func processID(part string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host, _, _ = strings.Cut(host, ".")
	return fmt.Sprintf("%s-%.40s-%d-%s", part, host, os.Getpid(), rand.Text()[:8])
}
