// Holds the schema to its rules.

package schema_test

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.M{M: m}) }

func list[V any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []V {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[V])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func one[V any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) V {
	t.Helper()
	all := list[V](t, pool, sql, args...)
	if len(all) != 1 {
		t.Fatalf("%d rows from %s", len(all), sql)
	}
	return all[0]
}

// Settings of a pool in the connection string are none of the server's.
func TestPoolSettings(t *testing.T) {
	url := pgtest.NewEmptyURL(t)
	for _, setting := range []string{"pool_max_conns=3", "pool_min_conns=1&pool_max_conn_lifetime=1h"} {
		with := url + "?" + setting
		if strings.Contains(url, "?") {
			with = url + "&" + setting
		}
		if err := schema.Migrate(t.Context(), with); err != nil {
			t.Errorf("migrate: %v", err)
		}
		if err := schema.Check(t.Context(), with); err != nil {
			t.Errorf("check: %v", err)
		}
	}
}

// Processes that start at once on an empty database migrate it once, and each returns when it is done.
func TestMigrateAtOnce(t *testing.T) {
	url := pgtest.NewEmptyURL(t)
	if err := schema.Check(t.Context(), url); err == nil || !strings.Contains(err.Error(), "no tidings schema") {
		t.Errorf("Check of an empty database: %v", err)
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			<-start
			if err := schema.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
			if err := schema.Check(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()

	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var installations int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM tidings.installation`).Scan(&installations); err != nil || installations != 1 {
		t.Errorf("%d installations, %v", installations, err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// A database of a newer release takes this one's processes, but not its migrations.
	exec(`INSERT INTO tidings.migration (version_id, is_applied) VALUES (99, true)`)
	if err := schema.Migrate(t.Context(), url); err == nil || !strings.Contains(err.Error(), "use a newer release") {
		t.Errorf("Migrate of a newer database: %v", err)
	}
	if err := schema.Check(t.Context(), url); err != nil {
		t.Errorf("Check of a newer database: %v", err)
	}
	exec(`DELETE FROM tidings.migration WHERE version_id = 99`)
	if err := schema.Migrate(t.Context(), url); err != nil {
		t.Errorf("Migrate once more: %v", err)
	}
	// A database that lacks a migration.
	exec(`DELETE FROM tidings.migration WHERE version_id > 0`)
	if err := schema.Check(t.Context(), url); err == nil || !strings.Contains(err.Error(), "run `tidings migrate`") {
		t.Errorf("Check of an old database: %v", err)
	}
}

// users are the tables that carry a bucket, logs those of the conversations, small those that are on every node; receipt is looked up
// by what providers say and is none of them.
var (
	users = []string{"attempt", "channel_pref", "device", "notification", "optout", "quiet", "route", "task", "token_floor"}
	logs  = []string{"conversation", "delivered", "event", "gone", "member", "mute", "posted", "read", "taken_back", "tombstone", "unread_due"}
	small = []string{"api_key", "channel_state", "gateway", "installation", "lineage", "migration", "receipt"}
)

// What the schema has to be to be distributed without a change.
func TestSchemaRules(t *testing.T) {
	pool := pgtest.NewPlain(t)
	const relations = `SELECT relname FROM pg_class WHERE relnamespace = 'tidings'::regnamespace AND relkind = ANY ($1::"char"[]) ORDER BY 1`
	tables := list[string](t, pool, relations, []string{"r", "p"})
	if all := slices.Sorted(slices.Values(slices.Concat(users, logs, small))); !slices.Equal(tables, all) {
		t.Errorf("the tables are %v, the lists of this test have %v", tables, all)
	}
	for key, family := range map[string][]string{"bucket smallint": users, "conv_id text": logs} {
		with := list[string](t, pool, `SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'tidings'::regnamespace
			AND c.relkind = 'r' AND a.attnotnull AND a.attgenerated = '' AND a.attname || ' ' || a.atttypid::regtype = $1 ORDER BY 1`, key)
		if !slices.Equal(with, family) {
			t.Errorf("S1: %s, not null, is in %v", key, with)
		}
		// S2: what is unique has the key.
		column, _, _ := strings.Cut(key, " ")
		for _, table := range family {
			for _, index := range list[string](t, pool, `SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indisunique AND indrelid = ('tidings.' || $1)::regclass`, table) {
				if _, columns, _ := strings.Cut(index, "("); !strings.Contains(columns, column) {
					t.Errorf("S2: %s", index)
				}
			}
		}
	}
	// S4: nothing else is unique.
	unique := list[string](t, pool, `SELECT regexp_replace(pg_get_indexdef(x.indexrelid), '^CREATE UNIQUE INDEX .* ON tidings\.(\w+) USING btree ', '\1 ')
		FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid WHERE x.indisunique AND c.relname = ANY ($1) AND c.relnamespace = 'tidings'::regnamespace
		ORDER BY 1`, slices.Concat(users, logs))
	want := []string{
		"attempt (task_id, n, bucket)",
		"channel_pref (user_id, channel, slot, bucket)",
		"conversation (conv_id)",
		"delivered (conv_id, user_id, device_id)",
		"device (user_id, device_id, bucket)",
		"event (conv_id, sender_user, cmid) WHERE (cmid IS NOT NULL)",
		"event (conv_id, seq)",
		"gone (conv_id, why, user_id, seq)",
		"member (conv_id, user_id) WHERE (leave_seq IS NULL)",
		"member (conv_id, user_id, join_seq)",
		"mute (conv_id, user_id)",
		"notification (id, bucket)",
		"notification (user_id, event_key, bucket)",
		"optout (user_id, category, channel, bucket)",
		"posted (conv_id, seq)",
		"quiet (user_id, bucket)",
		"read (conv_id, user_id)",
		"route (user_id, device_id, bucket)",
		"taken_back (conv_id, id)",
		"task (id, bucket)",
		"token_floor (user_id, bucket)",
		"tombstone (conv_id, sender_user, cmid)",
		"unread_due (conv_id, seq)",
	}
	slices.Sort(unique)
	if diff := cmp.Diff(want, unique); diff != "" {
		t.Errorf("S4: unique are (want, got)\n%s", diff)
	}
	// S3: the key column is in every child.
	if keys := list[string](t, pool, `SELECT conrelid::regclass::text || ' ' || conname FROM pg_constraint WHERE contype = 'f' AND connamespace = 'tidings'::regnamespace`); len(keys) > 0 {
		t.Errorf("S5: foreign keys %v", keys)
	}
	// S6: goose's own table alone has a sequence.
	if sequences := list[string](t, pool, relations, []string{"S"}); !slices.Equal(sequences, []string{"migration_id_seq"}) {
		t.Errorf("S6: sequences %v", sequences)
	}
	for table, column := range map[string]string{"notification": "id", "task": "id", "attempt": "task_id"} {
		checks := list[string](t, pool, `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = ('tidings.' || $1)::regclass`, table)
		if !slices.Contains(checks, "CHECK ((bucket = get_byte(uuid_send("+column+"), 0)))") {
			t.Errorf("S6: the bucket of %s is not checked against its %s", table, column)
		}
	}
	// S8: one type and collation.
	if kinds := list[string](t, pool, `SELECT DISTINCT format('%s %s', atttypid::regtype, (SELECT collname FROM pg_collation WHERE oid = attcollation)) FROM pg_attribute
		WHERE attname IN ('user_id', 'channel', 'slot', 'event_key', 'category', 'conv_id', 'device_id', 'cmid', 'gateway_id') AND attrelid::regclass::text LIKE 'tidings.%'
		  AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r')`); !slices.Equal(kinds, []string{"text C"}) {
		t.Errorf("S8: ids are %v", kinds)
	}
	if n := one[int](t, pool, `SELECT (SELECT count(*) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid WHERE NOT g.tgisinternal AND c.relnamespace = 'tidings'::regnamespace)
		+ (SELECT count(*) FROM pg_rewrite w JOIN pg_class c ON c.oid = w.ev_class WHERE c.relnamespace = 'tidings'::regnamespace)`); n != 0 {
		t.Errorf("S9: %d triggers and rules", n)
	}
}

var quoted = regexp.MustCompile(`'([^']*)'::text`)

// allowed are the values in a CHECK of the form column IN (…).
func allowed(t *testing.T, pool *pgxpool.Pool, table, like string) (values []string) {
	t.Helper()
	check := one[string](t, pool, `SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = ('tidings.' || $1)::regclass AND pg_get_constraintdef(oid) LIKE $2`, table, like)
	for _, m := range quoted.FindAllStringSubmatch(check, -1) {
		values = append(values, m[1])
	}
	return values
}

func TestVocabulary(t *testing.T) {
	pool := pgtest.New(t)
	var outcomes, states []string
	for _, o := range tidings.Outcomes {
		outcomes = append(outcomes, string(o))
	}
	for _, s := range []tidings.State{tidings.Pending, tidings.Sending, tidings.Sent, tidings.Failed, tidings.Unknown, tidings.Suppressed} {
		states = append(states, string(s))
	}
	if diff := cmp.Diff(outcomes, allowed(t, pool, "attempt", "CHECK ((outcome = ANY%")); diff != "" {
		t.Errorf("outcomes in Go and SQL:\n%s", diff)
	}
	if diff := cmp.Diff(states, allowed(t, pool, "task", "CHECK ((state = ANY%")); diff != "" {
		t.Errorf("states in Go and SQL:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SEND", "QUERY", "NONE"}, allowed(t, pool, "attempt", "CHECK ((action = ANY%")); diff != "" {
		t.Errorf("actions in Go and SQL:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"forbid", "allow"}, allowed(t, pool, "notification", "CHECK ((duplicates = ANY%")); diff != "" {
		t.Errorf("duplicates in Go and SQL:\n%s", diff)
	}
}

// someIDs are ids and what is nearly one, all valid UTF-8 without U+0000, which a parameter cannot carry.
func someIDs() []string {
	random := rand.New(rand.NewPCG(1, 2))
	all := []string{"", "u-ana", " ", "a b", "a/b", "a?b", "a#b", "a%b", "ü", "日本", "a\n", "\na", "a\tb", "!", "~", "\x7f", "\x01", "-", "]", "^", "\\", "a.b@c",
		strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 129), strings.Repeat("ü", 64), strings.Repeat("ü", 65)}
	for c := rune(1); c < 256; c++ {
		all = append(all, string(c), "a"+string(c)+"b")
	}
	for i := range 1000 {
		b := make([]byte, 1+random.IntN(130))
		for j := range b {
			b[j] = byte('!' + random.IntN('~'-'!'+1))
			if i%2 == 0 && strings.IndexByte("/?#%", b[j]) >= 0 {
				b[j] = '.'
			}
		}
		all = append(all, string(b))
	}
	return all
}

// What the constraints say of ids is what is_id says, and of buckets what bucket_of says, and none calls a function of ours: that would be
// read and inlined anew for every statement.
func TestConstraintsOnIDs(t *testing.T) {
	pool := pgtest.New(t)
	rows, err := pool.Query(t.Context(), `SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND connamespace = 'tidings'::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	var name, def string
	defs := map[string]string{}
	if _, err := pgx.ForEachRow(rows, []any{&name, &def}, func() error {
		defs[name] = def
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ids, buckets := 0, 0
	column := regexp.MustCompile(`\((\w+) ~ |convert_to\((\w+),`)
	for name, def := range defs {
		if strings.Contains(def, "tidings.") {
			t.Errorf("%s calls a function: %s", name, def)
		}
		for _, found := range column.FindAllStringSubmatch(def, -1) {
			says, meant := strings.TrimPrefix(def, "CHECK "), "tidings.is_id(u.id)"
			from := fmt.Sprintf(`(SELECT id, id AS %s FROM unnest($1::text[]) i (id)) u`, found[1]+found[2])
			if found[2] != "" {
				buckets++
				meant, from = "true", fmt.Sprintf(`(SELECT id, id AS %s, tidings.bucket_of(id) AS bucket FROM unnest($1::text[]) i (id)) u`, found[2])
			} else {
				ids++
			}
			var differs []string
			if err := pool.QueryRow(t.Context(), `SELECT coalesce(array_agg(u.id), '{}') FROM `+from+` WHERE u.id <> '' AND `+says+` IS DISTINCT FROM `+meant, someIDs()).Scan(&differs); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(differs) > 0 {
				t.Errorf("%s judges %q otherwise", name, differs)
			}
		}
	}
	if ids < 15 || buckets < 6 {
		t.Errorf("only %d constraints on ids and %d on buckets were found", ids, buckets)
	}
}

// Go and SQL agree on what an id is, and on every user's bucket. The fixed values guard against both changing together: stored
// rows carry them for ever.
func TestIDsAndBuckets(t *testing.T) {
	pool := pgtest.New(t)
	rows, err := pool.Query(t.Context(), `SELECT id, tidings.is_id(id), tidings.bucket_of(id) FROM unnest($1::text[]) AS u (id)`, someIDs())
	if err != nil {
		t.Fatal(err)
	}
	var id string
	var valid bool
	var bucket int16
	ids, buckets := 0, map[int16]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&id, &valid, &bucket}, func() error {
		if inGo := tidings.CheckID("id", id) == nil; inGo != valid {
			t.Errorf("%q is an id: in Go %t, in SQL %t", id, inGo, valid)
		}
		if tidings.Bucket(id) != bucket {
			t.Errorf("the bucket of %q is in Go %d, in SQL %d", id, tidings.Bucket(id), bucket)
		}
		buckets[bucket] = true
		if valid {
			ids++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if ids < 300 || len(buckets) < 200 {
		t.Errorf("only %d ids and %d buckets", ids, len(buckets))
	}
	for user, want := range map[string]int16{"": 0xe3, "u-ana": 0x03, "ü": 0x60} {
		if got := tidings.Bucket(user); got != want {
			t.Errorf("the bucket of %q has changed from %d to %d", user, want, got)
		}
	}
}

// A task's id is its idempotency key at a provider: if its derivation changed, a message whose outcome is unknown would be sent
// again under another key.
func TestTaskIDsAreForEver(t *testing.T) {
	pool := pgtest.New(t)
	const hash = `SELECT tidings.payload_hash($1, $2, 't', 'b', '{"a": 1}', 'c', 'x', 2)`
	const derive = `SELECT tidings.task_id($1::smallint, $2, $3, $4, $5)`
	ours := "00000000-0000-0000-0000-000000000001"
	content := one[[]byte](t, pool, hash, "u-ana", "e1")
	if got, want := hex.EncodeToString(content), "96fa809913290526c253a237c8410fa7cc2a44f6608d06e68c86f63d49914219"; got != want {
		t.Errorf("the hash of a notification has changed from %s to %s", want, got)
	}
	if got, want := one[tidings.UUID](t, pool, derive, 7, ours, content, "push", "").Key(), "07fa809913290526c6ecf571fb8428da"; got != want {
		t.Errorf("the id of a task has changed from %s to %s", want, got)
	}
	// What is not the same task has another id, also in what belongs to another notification or installation.
	seen := map[string]bool{}
	for _, parts := range [][]string{{"u-ana", "e1", "push", ""}, {"u-an", "ae1", "push", ""}, {"u-ana", "e1", "pus", "h"}, {"u-ana", "e1", "push", "h"}, {"u-ana", "e1p", "ush", ""}} {
		content := one[[]byte](t, pool, hash, parts[0], parts[1])
		for _, installation := range []string{ours, "00000000-0000-0000-0000-000000000002"} {
			id := one[tidings.UUID](t, pool, derive, 7, installation, content, parts[2], parts[3])
			tail := id.Key()[16:]
			if seen[tail] || id.Bucket() != 7 {
				t.Errorf("the id of %q is %s", parts, id)
			}
			seen[tail] = true
			if !one[bool](t, pool, `SELECT $1 BETWEEN tidings.first_task_id(7::smallint, $2) AND tidings.last_task_id(7::smallint, $2)`, id, content) {
				t.Errorf("the id %s is not among those of its notification", id)
			}
		}
	}
	contents := map[string]bool{}
	for _, args := range []string{`'ab', 'e', 't', 'b', '{}', 'c', 'x', 2`, `'a', 'be', 't', 'b', '{}', 'c', 'x', 2`, `'a', 'b', 'et', 'b', '{}', 'c', 'x', 2`,
		`'a', 'b', 'e', 'tb', '{}', 'c', 'x', 2`, `'a', 'b', 'e', 'tb', '{}', NULL, 'cx', 2`, `'a', 'b', 'e', 'tb', '{}', NULL, NULL, NULL`,
		`'a', 'b', 'e', 'tb', NULL, NULL, NULL, NULL`, `'a', 'b', 'e', 'tb', NULL, '', NULL, NULL`} {
		content := hex.EncodeToString(one[[]byte](t, pool, `SELECT tidings.payload_hash(`+args+`)`))
		if contents[content] {
			t.Errorf("the hash of %s is another's", args)
		}
		contents[content] = true
	}
	for _, bucket := range []int16{0, 1, 127, 128, 255} {
		id := one[tidings.UUID](t, pool, `SELECT tidings.new_id($1::smallint)`, bucket)
		if again := one[tidings.UUID](t, pool, `SELECT tidings.new_id($1::smallint)`, bucket); id.Bucket() != bucket || id == again {
			t.Errorf("new ids of bucket %d: %s, %s", bucket, id, again)
		}
	}
}
