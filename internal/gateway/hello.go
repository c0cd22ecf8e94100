// Hello, tokens of a session, refresh and revocation.

package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/token"
	"github.com/tidings-project/tidings/internal/wire"
)

// features are what a client may rely on beyond the first version of the protocol.
var features = []string{"recall"}

// verify judges a token and whether it was revoked.
func (g *Gateway) verify(ctx context.Context, text string) (token.Claims, error) {
	claims, err := g.cfg.Verifier.Verify(ctx, text)
	if err != nil {
		return token.Claims{}, err
	}
	floor, err := g.cfg.Store.TokenFloor(ctx, claims.User)
	if err != nil {
		return token.Claims{}, err
	}
	if claims.Revoked(floor) {
		return token.Claims{}, errRevoked
	}
	return claims, nil
}

var errRevoked = &tidings.Error{Code: tidings.Unauthenticated, Message: "the token was revoked"}

// hello answers the first frame, and tells the reader whether the session goes on.
func (s *session) hello(req wire.Request) {
	if s.at() >= closing {
		s.greeted <- false
		return
	}
	code, err := wire.CloseLostLease, unavailable("the gateway has more to do than it can")
	if s.g.clock()-s.seen.Load() < int64(s.g.cfg.RequestTimeout) { // otherwise the client has given up, most likely
		code, err = s.greet(req)
	}
	if err != nil {
		s.refuse(req.Rid, req.T, err, code)
	}
	s.greeted <- err == nil
}

// greet makes the session one of its user and device. After an error it is closed with the code.
func (s *session) greet(req wire.Request) (code int, err error) {
	ctx, cancel := s.g.requestContext(s.g.ctx)
	defer cancel()
	claims, err := s.authenticate(ctx, req.Token)
	if err == nil && claims.Device != "" && claims.Device != req.Device {
		err = tidings.Errorf(tidings.Unauthenticated, "the token is of another device")
	}
	if err != nil {
		return closeCode(err), err
	}
	s.claims.Store(&claims)
	s.user, s.device = claims.User, req.Device
	if err := s.g.roster.join(s, s.g.cfg.MaxPerUser); err != nil {
		return wire.CloseTooMany, err
	}
	state, err := s.g.cfg.Store.Hello(ctx, s.user, s.device, req.Install, s.g.cfg.ID, s.connection)
	if err != nil {
		return closeCode(err), err
	}
	s.installNo, s.version = state.InstallNo, state.Version
	if !state.OldConnection.IsZero() {
		s.g.hub.displaced(s.user, state.OldGateway, state.OldConnection)
	}
	// The welcome is the first thing that the client sees; the first event comes behind it, and none after it is missed: what is
	// pushed meanwhile waits in the queue.
	s.send(wire.AppendWelcome(nil, req.Rid, s.welcome(state.Now)))
	if err := s.g.hub.subscribe(ctx, s); err != nil {
		return closeCode(err), err
	}
	s.uncork()
	return 0, nil
}

// authenticate returns what the hello's token says, or that of the handshake when hello has none.
func (s *session) authenticate(ctx context.Context, text string) (token.Claims, error) {
	before := s.claims.Load()
	switch {
	case text == "" && before == nil:
		return token.Claims{}, tidings.Errorf(tidings.Unauthenticated, "there is no token")
	case text == "":
		return *before, nil
	}
	claims, err := s.g.verify(ctx, text)
	if err == nil && before != nil && before.User != claims.User {
		err = tidings.Errorf(tidings.Unauthenticated, "the tokens are of two users")
	}
	return claims, err
}

func (s *session) welcome(now time.Time) *wire.Welcome {
	return &wire.Welcome{User: s.user, Device: s.device, Connection: s.connection.String(), Now: now.UnixMilli(),
		PingMS: s.g.cfg.PingEvery.Milliseconds(), Limits: wire.NewLimits(s.g.cfg.Resend), Features: features}
}

// refresh takes a newer token of the same user.
func (s *session) refresh(req wire.Request) {
	ctx, cancel := s.g.requestContext(s.g.ctx)
	defer cancel()
	claims, err := s.g.verify(ctx, req.Token)
	switch {
	case err != nil:
	case claims.User != s.user:
		err = tidings.Errorf(tidings.Unauthenticated, "the token is of another user")
	case claims.Device != "" && claims.Device != s.device:
		err = tidings.Errorf(tidings.Unauthenticated, "the token is of another device")
	}
	s.refreshing.Store(false)
	if err != nil {
		s.answerError(req.Rid, req.T, err)
		return
	}
	s.claims.Store(&claims)
	s.answer(wire.AppendRefreshed(nil, req.Rid))
}

// closeCode is the code that a session is closed with which could not be opened because of err.
func closeCode(err error) int {
	switch tidings.ErrorCode(err) {
	case tidings.Unauthenticated:
		if errors.Is(err, errRevoked) {
			return wire.CloseRevoked
		}
		return wire.CloseToken
	case tidings.InstallReplaced:
		return wire.CloseInstalled
	}
	return wire.CloseLostLease
}

// watchFloors looks for revocations every Config.FloorsEvery until ctx ends.
func (g *Gateway) watchFloors(ctx context.Context) {
	var since time.Time
	ticker := time.NewTicker(g.cfg.FloorsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asking, cancel := g.requestContext(ctx)
		floors, now, err := g.cfg.Store.TokenFloorsSince(asking, since)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				g.log.Warn("revocations could not be read; open sockets keep theirs until they can", "error", err)
			}
			continue
		}
		since = now
		for _, f := range floors {
			for _, s := range g.roster.of(f.User) {
				if s.claims.Load().Revoked(f.NotBefore) {
					s.close(wire.CloseRevoked, "the token was revoked")
				}
			}
		}
	}
}

// requestContext bounds what a request asks of the database.
func (g *Gateway) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, g.cfg.RequestTimeout)
}
