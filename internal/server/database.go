// The pool of connections.

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

// OpenStore makes a store with a pool of its own, which the caller closes. It connects when it is used, to whatever database there is: it is
// for operators' tools. A URL that is none is an ErrConfig.
func OpenStore(url string, conns int32) (*store.Store, error) {
	return openStore(url, conns, store.Configure)
}

// OpenServedStore is OpenStore for those who serve: no connection of it leads to a history that has lost something, by what m
// remembers and the database says.
func OpenServedStore(url string, conns int32, m *store.LineageMemory) (*store.Store, error) {
	return openStore(url, conns, m.Configure)
}

func openStore(url string, conns int32, configure func(*pgxpool.Config)) (*store.Store, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: read the database URL: %w", ErrConfig, err)
	}
	c.MaxConns = conns
	c.ConnConfig.ConnectTimeout = 5 * time.Second
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "tidings"
	}
	configure(c)
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return store.New(pool), nil
}
