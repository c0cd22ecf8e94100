// A small shop: it stores an order and tells the customer, in one transaction.

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/outbox"
)

const tableSQL = `CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text NOT NULL)`

const insertSQL = `INSERT INTO orders (id, customer) VALUES ($1, $2)`

func main() {
	if len(os.Args) < 2 {
		log.Fatal("which order?")
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
	refused := len(os.Args) > 2 && os.Args[2] == "refused"
	if err := place(ctx, pool, os.Args[1], "u-ana", refused); err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", os.Args[1], "is placed")
}

// place stores an order and tells its customer: both, or neither.
func place(ctx context.Context, pool *pgxpool.Pool, order, customer string, refused bool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // commits, or rolls back when there is an error
		if _, err := tx.Exec(ctx, insertSQL, order, customer); err != nil {
			return err
		}
		if _, err := outbox.Notify(ctx, tx, tidings.Notification{
			User: customer, EventKey: "order-" + order + "-placed", Channels: []string{"email"},
			Title: "Your order " + order, Body: "Thank you. It leaves tomorrow.", TTL: tidings.Seconds(24 * time.Hour),
		}); err != nil {
			return err
		}
		if refused {
			return errors.New("the card was refused")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("place order %s: %w", order, err)
	}
	_ = outbox.Wake(ctx, pool) // saves a worker's polling interval; nothing is lost without it
	return nil
}
