// The crowds of users, members and conversations that messages are measured on, and how they are written into the tables.

package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/internal/store"
)

// Crowds of users, each with conversations of its own, NAME-0, NAME-1, …, in which receiver NAME-r-(n mod receivers) is a member.
//
// In "spread" and "wide" a conversation has one sender; in "single" one user sends to all of them. In "crowd" all 64 senders are members of
// each and get its messages, too: it has the fan-out of one conversation of 64 people, spread over many.
var crowds = map[string]crowd{
	"spread": {senders: 64, receivers: 64, fewer: 1},
	"wide":   {senders: 512, receivers: 64, fewer: 1},
	"single": {senders: 1, receivers: 64, fewer: 1},
	"crowd":  {senders: 64, receivers: 1, everybody: true, fewer: 10},
}

type crowd struct {
	senders, receivers int
	everybody          bool // every sender is a member of every conversation
	fewer              int  // it has that many times fewer than -chat-conversations
}

func (c crowd) conversations() int { return max(1, *chatConvs/c.fewer) }

const (
	seedConversationsSQL = `INSERT INTO tidings.conversation (conv_id, epoch) SELECT $1 || '-' || n, (SELECT generation FROM tidings.lineage) FROM generate_series(0, $2::int - 1) n`
	seedSenderSQL        = `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT $1 || '-' || n, $1 || '-s-' || n % $3::int, 1 FROM generate_series(0, $2::int - 1) n`
	seedSendersSQL       = `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT $1 || '-' || n, $1 || '-s-' || s, 1 FROM generate_series(0, $2::int - 1) n, generate_series(0, $3::int - 1) s`
	seedReceiverSQL      = `INSERT INTO tidings.member (conv_id, user_id, join_seq) SELECT $1 || '-' || n, $1 || '-r-' || n % $3::int, 1 FROM generate_series(0, $2::int - 1) n`
)

// seedCrowd makes the conversations of a crowd, as they are before anything was said in them.
func seedCrowd(ctx context.Context, pool *pgxpool.Pool, name string, c crowd) error {
	seed := seedSenderSQL
	if c.everybody {
		seed = seedSendersSQL
	}
	_, err := pool.Exec(ctx, seedConversationsSQL, name, c.conversations())
	if err == nil {
		_, err = pool.Exec(ctx, seed, name, c.conversations(), c.senders)
	}
	if err == nil && c.receivers > 0 {
		_, err = pool.Exec(ctx, seedReceiverSQL, name, c.conversations(), c.receivers)
	}
	if err != nil {
		return fmt.Errorf("seed %s: %w", name, err)
	}
	return nil
}

// chatDatabase makes a database with a lineage and the conversations of crowds.
func (b *bench) chatDatabase(ctx context.Context, name string, of ...string) (*pgxpool.Pool, string, error) {
	pool, url, err := b.database(ctx, name, true)
	if err != nil {
		return nil, "", err
	}
	if err := store.New(pool).EnsureLineage(ctx); err != nil {
		return nil, "", err
	}
	for _, name := range of {
		if err := seedCrowd(ctx, pool, name, crowds[name]); err != nil {
			return nil, "", err
		}
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE")
	return pool, url, err
}
