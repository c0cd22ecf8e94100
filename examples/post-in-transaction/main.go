// A shop that marks an order as shipped and says so in the conversation with its customer, in one transaction.

package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/outbox"
)

const tableSQL = `CREATE TABLE IF NOT EXISTS shipments (order_id text PRIMARY KEY, conv text NOT NULL)`

const insertSQL = `INSERT INTO shipments (order_id, conv) VALUES ($1, $2) ON CONFLICT DO NOTHING`

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: post-in-transaction ORDER CONVERSATION SENDER, with the database in DATABASE_URL")
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, tableSQL); err != nil {
		log.Fatal(err)
	}
	said, err := ship(ctx, pool, os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("order %s is shipped; the message is number %d of %s, said before: %v\n", os.Args[1], said.Seq, os.Args[2], said.Dup)
}

// ship records a shipment and says so in a conversation: both, or neither. Doing it again changes nothing: the order makes the
// message's id, so that a repetition is recognised.
func ship(ctx context.Context, pool *pgxpool.Pool, order, conv, sender string) (said tidings.Answer, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // commits, or rolls back when there is an error
		if _, err := tx.Exec(ctx, insertSQL, order, conv); err != nil {
			return err
		}
		answers, err := outbox.Post(ctx, tx, tidings.Message{ // last: it holds the conversation's lock until the commit
			Conv: conv, Sender: sender, Cmid: "order-" + order + "-shipped", Body: "Order " + order + " is on its way.",
		})
		if err != nil {
			return err
		}
		said = answers[0]
		if said.Code != "" { // a refusal is an answer, and the transaction could go on; this one must not
			return fmt.Errorf("the message is refused: %s", said.Code)
		}
		return nil
	})
	if err != nil {
		return said, fmt.Errorf("ship order %s: %w", order, err)
	}
	_ = outbox.Wake(ctx, pool) // shows it at once; nothing is lost without it
	return said, nil
}
