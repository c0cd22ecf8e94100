// A server that takes signed webhooks, each once.

package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidings-project/tidings/channel/webhook"
)

// maxBody is more than any notification has (title, body and data, written as JSON).
const maxBody = 256 << 10

const tableSQL = `CREATE TABLE IF NOT EXISTS received (webhook_id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(),
	recipient text NOT NULL, body text NOT NULL)`

// receivedSQL takes an id once. Here this is all that is done; what your application does besides belongs into the same transaction,
// and is done only when a row was inserted.
const receivedSQL = `INSERT INTO received (webhook_id, recipient, body) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

func main() {
	secret, err := webhook.ParseSecret(os.Getenv("WEBHOOK_SECRET"))
	if err != nil {
		log.Fatal("WEBHOOK_SECRET: ", err)
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
	server := http.Server{Addr: "127.0.0.1:9001", Handler: &receiver{secrets: []webhook.Secret{secret}, pool: pool}, ReadHeaderTimeout: 10 * time.Second}
	log.Print("webhooks are taken at http://", server.Addr)
	log.Print(server.ListenAndServe())
}

// receiver takes webhooks that one of the secrets has signed: two of them, while one is exchanged for the other.
type receiver struct {
	secrets []webhook.Secret
	pool    *pgxpool.Pool
}

// ServeHTTP answers 200 when the webhook is stored, now or before; 401 or 400 when it is not and never will be; 500 when nobody can be sure.
// Then Tidings sends it again under the same id if its channel declares a key_window, as a receiver that remembers ids for ever may; otherwise a
// person has to decide.
func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	// Over the bytes as they came, before anything reads them: also an old or a foreign message has a good form.
	if err := webhook.Verify(r.Header, s.secrets, time.Now(), body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var n struct {
		Type string `json:"type"`
		User string `json:"user"`
		Body string `json:"body"`
	}
	if json.Unmarshal(body, &n) != nil || n.Type != "notification" {
		http.Error(w, "no notification", http.StatusBadRequest)
		return
	}
	id := r.Header.Get(webhook.HeaderID) // it is signed, too, and the same in every attempt
	if _, err := s.pool.Exec(r.Context(), receivedSQL, id, n.User, n.Body); err != nil {
		log.Printf("take the webhook %s: %v", id, err)
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id}) // Tidings shows it as the provider's id
}
