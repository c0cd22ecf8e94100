// The pool of connections.

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

// OpenStore makes a store with a pool of its own, which the caller closes. It connects when it is used. A URL that is none is an ErrConfig.
func OpenStore(url string, conns int32) (*store.Store, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: read the database URL: %w", ErrConfig, err)
	}
	c.MaxConns = conns
	c.ConnConfig.ConnectTimeout = 5 * time.Second
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "tidings"
	}
	store.Configure(c)
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return store.New(pool), nil
}
