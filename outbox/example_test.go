// The examples of the package's documentation.

package outbox_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/outbox"
)

// An order is marked as shipped, and its customer is told, in one transaction: both are stored, or neither is.
func ExampleNotify() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing

	if _, err := tx.Exec(ctx, `UPDATE orders SET shipped_at = now() WHERE id = 1001`); err != nil {
		log.Fatal(err)
	}
	answers, err := outbox.Notify(ctx, tx, tidings.Notification{
		User: "u-ana", EventKey: "order-1001-shipped",
		Title: "On its way", Body: "Order 1001 has been shipped.", TTL: tidings.Seconds(24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err) // unknown: submit again with the same key
	}
	_ = outbox.Wake(ctx, pool) // saves a polling interval; nothing is lost without it
	fmt.Println("new:", answers[0].Created)
}

// An order is marked as shipped, and the shop says so in the conversation with its customer, in one transaction.
func ExamplePost() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing

	if _, err := tx.Exec(ctx, `UPDATE orders SET shipped_at = now() WHERE id = 1001`); err != nil {
		log.Fatal(err)
	}
	answers, err := outbox.Post(ctx, tx, tidings.Message{
		Conv: "order-1001", Sender: "u-shop", Cmid: "order-1001-shipped", Body: "Order 1001 has been shipped.",
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err) // unknown: post again with the same cmid
	}
	_ = outbox.Wake(ctx, pool) // shows it at once; nothing is lost without it
	if answers[0].Code != "" {
		log.Fatal("refused: ", answers[0].Code)
	}
	fmt.Println("at", answers[0].Seq, "a repeat:", answers[0].Dup)
}
