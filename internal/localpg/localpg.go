// Package localpg runs a private PostgreSQL server for development, tests and experiments.
//
// The server listens on 127.0.0.1 only, asks for a random password, and ends with the process that started it, even if
// that process is killed. It runs for root as well, as another user. FindClient finds the client programs of PostgreSQL.
//
// Two environment variables direct it: TIDINGS_PG_BIN is the directory with the server programs, see Find;
// TIDINGS_PG_USER is the user that runs the server for root, instead of postgres or nobody.
package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say what server to run. The zero value is a temporary server.
type Options struct {
	// Dir is where the server keeps data and log (postgres.log) from one run to the next. If root runs it as a user who
	// cannot enter Dir, the data lie below /var/tmp and Dir/pg is a link to them: only Remove removes both. Empty means a
	// temporary directory, which goes with Stop or with the end of this process.
	Dir string

	// Port is the TCP port on 127.0.0.1; 0 chooses a free one, the same in each run for the same Dir if possible.
	Port int

	// Settings go to postgresql.conf, after and therefore over the settings that localpg makes.
	Settings map[string]string

	// Archive has the server archive its WAL beside its data, for RestoreTo.
	Archive bool
}

// Server is a running PostgreSQL server, or one that was stopped and can be started again with Restart.
type Server struct {
	bin      Binaries
	account  account
	place    *place
	password string
	settings string

	mu     sync.Mutex // held while the server is started or stopped
	port   int
	run    *run // nil while stopped
	closed bool // Stop was called
}

// startPatience bounds a start, recovery after a crash included.
const startPatience = 2 * time.Minute

// Start starts a server and returns when it takes connections. Where there are no data yet, it makes an empty cluster:
// UTF8, locale C, role postgres. A second Start on the same Dir fails, naming the process that has it.
func Start(ctx context.Context, o Options) (*Server, error) {
	settings, err := confLines(o.Settings)
	if err != nil {
		return nil, err
	}
	a, err := serverAccount()
	if err != nil {
		return nil, err
	}
	if o.Dir != "" {
		if o.Dir, err = filepath.Abs(o.Dir); err != nil {
			return nil, fmt.Errorf("find %s: %w", o.Dir, err)
		}
	}
	p, err := openPlace(ctx, a, o.Dir)
	if err != nil {
		return nil, err
	}
	return begin(ctx, &Server{account: a, place: p, settings: settings, port: o.Port}, o)
}

// begin starts a server for the first time in its place, which it closes if that fails.
func begin(ctx context.Context, s *Server, o Options) (*Server, error) {
	var err error
	if o.Archive {
		err = s.archive()
	}
	if err == nil {
		err = s.prepare(ctx)
	}
	if err == nil {
		err = s.launch(ctx, o.Port != 0, false)
	}
	if err != nil {
		return nil, errors.Join(err, s.place.close())
	}
	return s, nil
}

// prepare finds programs that can serve the data, and the password.
func (s *Server) prepare(ctx context.Context) error {
	major, err := s.place.major()
	if err != nil {
		return fmt.Errorf("read the version of the data: %w", err)
	}
	if s.bin, err = findOrFetch(ctx, s.account, major, defaultSource(s.account)); err != nil {
		return err
	}
	if s.password, err = s.place.secret(s.account, major == 0); err != nil {
		return fmt.Errorf("read the password of the server: %w", err)
	}
	return nil
}

// launch starts the server process. A port that somebody takes between choice and use is exchanged for another, unless
// it is fixed; a restart waits a while for its own port and for the last processes of a server that was killed.
func (s *Server) launch(ctx context.Context, fixedPort, again bool) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if !fixedPort {
			s.port = choosePort(s.place.dir, attempt)
		}
		err := s.place.clearStalePid()
		if err == nil {
			err = s.start(ctx)
		}
		if err == nil {
			return nil
		}
		canWait := errors.Is(err, errLingering) || errors.Is(err, errPortTaken) && (again || !fixedPort)
		if !canWait || attempt == 100 || ctx.Err() != nil {
			return fmt.Errorf("start PostgreSQL %s in %s: %w", s.bin.Version, s.place.dir, err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// start makes one attempt to start the server on s.port.
func (s *Server) start(ctx context.Context) error {
	r, err := startRun(s)
	if err != nil {
		return err
	}
	if err := r.awaitReady(ctx, s.place.pidFile()); err != nil {
		return errors.Join(err, r.end(context.Background(), "QUIT"))
	}
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return errors.Join(fmt.Errorf("connect to the server: %w", err), r.end(context.Background(), "INT"))
	}
	s.run = r
	if err := conn.Close(ctx); err != nil {
		return errors.Join(fmt.Errorf("close the first connection: %w", err), s.halt(ctx, "INT"))
	}
	return nil
}

// Stop ends the server in order: running transactions are rolled back, everything is flushed. If ctx ends first, or a
// minute has passed, the server is stopped at once, which loses nothing that was committed, and Stop returns an error.
// A temporary server's data are removed. A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.halt(ctx, "INT"), s.place.close())
}

// StopImmediate stops the server without flushing anything, as a crash would, and keeps the data, even if temporary. It
// does nothing if the server does not run.
func (s *Server) StopImmediate(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(ctx, "QUIT")
}

// Restart starts the server again, on the same port and data, after stopping it in order if it runs.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart PostgreSQL: the server was stopped for good")
	}
	if err := s.halt(ctx, "INT"); err != nil {
		return err
	}
	return s.launch(ctx, true, true)
}

// halt ends the process of the server, if there is one.
func (s *Server) halt(ctx context.Context, signal string) error {
	if s.run == nil {
		return nil
	}
	err := s.run.end(ctx, signal)
	s.run = nil
	return err
}

// URL returns the connection URL of a database, for the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", s.password),
		Host:     s.Addr(),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Addr returns host and port, for example 127.0.0.1:17432.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Binaries returns the programs that the server runs.
func (s *Server) Binaries() Binaries { return s.bin }

// DataDir returns the data directory. It belongs to the user that the server runs as.
func (s *Server) DataDir() string { return s.place.data() }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return s.place.log }

// PID returns the process id of the postmaster, or 0 while the server is stopped.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.pid
}
