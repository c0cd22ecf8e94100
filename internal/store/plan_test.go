// What a statement's plan has read, and tables of which nobody knows anything.

package store

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// planned is a node of a plan that was run.
type planned struct {
	Type     string    `json:"Node Type"`
	Relation string    `json:"Relation Name"`
	Index    string    `json:"Index Name"`
	Cond     string    `json:"Index Cond"`
	Rows     float64   `json:"Actual Rows"`
	Loops    float64   `json:"Actual Loops"`
	Removed  float64   `json:"Rows Removed by Filter"`
	Plans    []planned `json:"Plans"`
}

// each calls f for a node and all below it.
func (p *planned) each(f func(*planned)) {
	f(p)
	for i := range p.Plans {
		p.Plans[i].each(f)
	}
}

// touched is how many rows of a table a plan has read, and through which indexes.
func (p *planned) touched(table string) (rows int, by []string) {
	p.each(func(n *planned) {
		if n.Relation == table && n.Type != "ModifyTable" {
			rows += int((n.Rows + n.Removed) * n.Loops)
			by = append(by, strings.TrimSpace(n.Type+" "+n.Index))
		}
	})
	return rows, by
}

// explained runs a statement under the settings of byKey, rolls it back and returns what it did.
func explained(ctx context.Context, t *testing.T, conn *pgx.Conn, sql string, args pgx.NamedArgs) planned {
	t.Helper()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, byKeySQL); err != nil {
		t.Fatal(err)
	}
	var text []byte
	if err := tx.QueryRow(ctx, `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct{ Plan planned }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

// young is a connection to a database as a young installation has it: nobody has looked at these tables since they were empty. exec has to succeed.
func young(t *testing.T, pool *pgxpool.Pool, tables ...string) (conn *pgx.Conn, exec func(sql string, args ...any)) {
	t.Helper()
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	exec = func(sql string, args ...any) {
		t.Helper()
		if _, err := held.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range tables {
		exec(`ALTER TABLE tidings.` + table + ` SET (autovacuum_enabled = off)`)
		exec(`ANALYZE tidings.` + table)
	}
	return held.Conn(), exec
}
