// Holds every statement to the schema, the state machine and the rules of docs/scale.md.

package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
)

// sqlPackages are the packages whose statements are constants with a name that ends in SQL.
var sqlPackages = []string{".", "../../outbox"}

// statement is one such constant.
type statement struct {
	name, sql string
	edges     []string // of its `edge:` comment
}

// sources parses the files of a package, without its tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// statements evaluates the SQL constants of a package.
func statements(t *testing.T, files []*ast.File) (all []statement) {
	t.Helper()
	values := map[string]ast.Expr{}
	docs := map[string]string{}
	for _, f := range files {
		for _, decl := range f.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) {
						values[name.Name] = v.Values[i]
						docs[name.Name] = group.Doc.Text() + v.Doc.Text()
					}
				}
			}
		}
	}
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			return s
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		case *ast.ParenExpr:
			return text(e.X)
		case *ast.Ident:
			if v, ok := values[e.Name]; ok {
				return text(v)
			}
		}
		t.Fatalf("a statement is not made of string constants alone: %T", e)
		return ""
	}
	for name, value := range values {
		if strings.HasSuffix(name, "SQL") {
			all = append(all, statement{name, text(value), edgesIn(docs[name])})
		}
	}
	slices.SortFunc(all, func(a, b statement) int { return strings.Compare(a.name, b.name) })
	return all
}

var edgeComment = regexp.MustCompile(`(?m)edge: ([a-z-]+(?:, [a-z-]+)*)\s*$`)

func edgesIn(text string) (names []string) {
	for _, m := range edgeComment.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.Split(m[1], ", ")...)
	}
	return names
}

func allStatements(t *testing.T) (all []statement) {
	for _, dir := range sqlPackages {
		all = append(all, statements(t, sources(t, dir))...)
	}
	if len(all) < 40 {
		t.Fatalf("only %d statements were found", len(all))
	}
	return all
}

func TestStatementsPrepare(t *testing.T) {
	conn, err := pgtest.New(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, s := range allStatements(t) {
		sql, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), s.sql, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Conn().Prepare(t.Context(), "", sql); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}

// Every statement that changes a task's state names the edges that it takes, and every edge is taken by some statement.
func TestStatementsNameTheirEdges(t *testing.T) {
	migrations, err := filepath.Glob("../../schema/migrations/*.sql")
	if err != nil || len(migrations) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	all := allStatements(t)
	for _, name := range migrations {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, statement{filepath.Base(name), "", edgesIn(string(b))})
	}
	taken := map[string]bool{}
	for _, s := range all {
		if err := edgesMissing(s); err != "" {
			t.Error(err)
		}
		for _, name := range s.edges {
			taken[name] = true
			if !slices.ContainsFunc(tidings.Edges, func(e tidings.Edge) bool { return e.Name == name }) {
				t.Errorf("%s takes the edge %q, which does not exist", s.name, name)
			}
		}
	}
	for _, e := range tidings.Edges {
		if !taken[e.Name] {
			t.Errorf("no statement takes the edge %q", e.Name)
		}
	}
}

var settles = regexp.MustCompile(`\b(state|needs_review|attempt_token)\s*=`)

func edgesMissing(s statement) string {
	for _, w := range writesIn(s.sql) {
		if w.table == "task" && (w.verb != "UPDATE" || settles.MatchString(w.set)) && len(s.edges) == 0 {
			return s.name + " changes the state of tasks and names no edge"
		}
	}
	return ""
}

// The rules of SQL that has to run unchanged on one PostgreSQL and on a distributed one, as far as the text tells.
func TestStatementsKeepTheRules(t *testing.T) {
	pool := pgtest.New(t)
	rows, err := pool.Query(t.Context(), `SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Contains(names, "new_id") || !slices.Contains(names, "random") {
		t.Fatalf("%d volatile functions, %v", len(names), err)
	}
	volatile := map[string]bool{}
	for _, name := range names {
		volatile[name] = true
	}
	for _, s := range allStatements(t) {
		for _, broken := range brokenRules(s.sql, volatile) {
			if strings.HasPrefix(s.name, "verify") && strings.HasPrefix(broken, "Q1") {
				continue // verify reads by ranges of ids on purpose: a row in a wrong bucket has to be found
			}
			if s.name == "journalLagSQL" && strings.HasPrefix(broken, "Q1") {
				continue // the oldest of all conversations
			}
			t.Errorf("%s: %s", s.name, broken)
		}
	}
	for _, bad := range []string{
		`UPDATE tidings.task t SET attempt_token = tidings.new_id(t.bucket) WHERE t.id = @id AND t.bucket = @bucket`,
		`WITH x AS (DELETE FROM tidings.attempt a WHERE a.n > random() AND a.bucket = @bucket) SELECT (SELECT 1)`,
		`UPDATE tidings.task t SET lease_until = now() + t.delay WHERE t.id = @id AND t.bucket = @bucket`,
		`INSERT INTO tidings.optout AS o (bucket) VALUES (@bucket) ON CONFLICT (user_id) DO UPDATE SET at = statement_timestamp()`,
		`UPDATE tidings.task t SET state = 'SENT' WHERE t.id = @id`,
		`SELECT n.id FROM tidings.notification n WHERE n.id = @id`,
		`SELECT t.id FROM tidings.task t JOIN tidings.attempt a ON a.task_id = t.id WHERE t.bucket = @bucket`,
		`INSERT INTO tidings.attempt (task_id, n) VALUES (@id, 1)`,
		`SELECT u.id FROM unnest(@ids::uuid[]) u (id) CROSS JOIN LATERAL (SELECT t.id FROM tidings.task t WHERE t.id = u.id AND t.bucket = @bucket LIMIT 1) x`,
		`SELECT t.id FROM task t WHERE t.bucket = @bucket`,
		`SELECT e.seq FROM tidings.event e WHERE e.mid = @mid`,
		`SELECT m.user_id FROM tidings.conversation c JOIN tidings.member m ON m.join_seq < c.next_seq WHERE c.conv_id = @conv`,
		`INSERT INTO tidings.posted (seq) VALUES (@seq)`,
		`DELETE FROM tidings.route r WHERE r.connection_id = @connection`,
	} {
		if len(brokenRules(bad, volatile)) == 0 {
			t.Errorf("nothing is found in %s", bad)
		}
	}
	if edgesMissing(statement{sql: `UPDATE tidings.task t SET n = 1, state = 'SENT'`}) == "" || edgesMissing(statement{sql: `DELETE FROM tidings.task t`}) == "" {
		t.Error("a statement without its edges is not found")
	}
}

var (
	tableRef  = regexp.MustCompile(`(?:FROM|JOIN|UPDATE|USING|INTO)\s+tidings\.(\w+)(?:\s+(?:AS\s+)?([a-z_]\w*))?(\s*\([^)]*\))?`)
	bareTable = regexp.MustCompile(`(?:FROM|JOIN|UPDATE|USING|INTO)\s+(?:notification|task|attempt|channel_pref|optout|receipt|conversation|event|member|delivered|read|tombstone|posted|gone|taken_back|unread_due|mute|quiet|device|route|gateway|token_floor)\s+(?:AS\s+)?\w+\s`)
	function  = regexp.MustCompile(`\b([a-z_][a-z_0-9]*)\s*\(`)
	clock     = regexp.MustCompile(`(?i)\b(now|\w+_timestamp)\s*\(|\bcurrent_timestamp\b|\blocaltimestamp\b`)
	// distributed are the tables of both families with the key column by which they are distributed.
	distributed = map[string]string{
		"notification": "bucket", "task": "bucket", "attempt": "bucket", "channel_pref": "bucket", "optout": "bucket",
		"device": "bucket", "route": "bucket", "token_floor": "bucket", "quiet": "bucket",
		"conversation": "conv_id", "event": "conv_id", "member": "conv_id", "delivered": "conv_id", "read": "conv_id",
		"tombstone": "conv_id", "posted": "conv_id", "gone": "conv_id", "taken_back": "conv_id", "unread_due": "conv_id", "mute": "conv_id",
	}
)

// brokenRules names the rules that a statement breaks.
func brokenRules(sql string, volatile map[string]bool) (broken []string) {
	for _, w := range writesIn(sql) {
		if w.verb == "INSERT" {
			continue
		}
		for _, f := range function.FindAllStringSubmatch(w.text, -1) {
			if volatile[f[1]] {
				broken = append(broken, "Q3: the volatile function "+f[1]+" in an "+w.verb)
			}
		}
		if clock.MatchString(w.set) {
			broken = append(broken, "Q4: the clock in SET; compute the value in a materialised CTE")
		}
	}
	for _, m := range tableRef.FindAllStringSubmatch(sql, -1) {
		table, alias, columns := m[1], m[2], m[3]
		key := distributed[table]
		if key == "" {
			continue
		}
		if strings.HasPrefix(m[0], "INTO") {
			if !regexp.MustCompile(`\b` + key + `\b`).MatchString(columns) {
				broken = append(broken, "Q1: an INSERT into "+table+" without its "+key)
			}
		} else if alias == "" || !regexp.MustCompile(`\b`+alias+`\.`+key+`\b`).MatchString(sql) {
			broken = append(broken, "Q1: "+table+" "+alias+" without its "+key)
		}
	}
	if strings.Contains(sql, "unnest(") && regexp.MustCompile(`(?s)LATERAL\s*\(.*LIMIT`).MatchString(sql) {
		broken = append(broken, "Q7: LATERAL … LIMIT over unnest")
	}
	if m := bareTable.FindString(sql); m != "" && !strings.Contains(sql, " AS (") {
		broken = append(broken, "a table without its schema: "+m)
	}
	return broken
}

// write is a part of a statement that changes rows.
type write struct{ verb, table, text, set string }

var (
	writeStart = regexp.MustCompile(`(INSERT INTO|UPDATE|DELETE FROM)\s+tidings\.(\w+)|DO UPDATE SET`)
	setEnd     = regexp.MustCompile(`^(FROM|WHERE|RETURNING)\b`)
)

// writesIn finds the parts of a statement that change rows. A part ends with the parenthesis around it.
func writesIn(sql string) (all []write) {
	for _, m := range writeStart.FindAllStringSubmatchIndex(sql, -1) {
		w := write{verb: "UPDATE", table: "?"}
		if m[2] >= 0 {
			w.verb, _, _ = strings.Cut(sql[m[2]:m[3]], " ")
			w.table = sql[m[4]:m[5]]
		}
		depth, quoted, setFrom, setTo := 0, false, -1, -1
		end := len(sql)
	scan:
		for i := m[0]; i < len(sql); i++ {
			switch c := sql[i]; {
			case c == '\'':
				quoted = !quoted
			case quoted:
			case c == '(':
				depth++
			case c == ')':
				if depth--; depth < 0 {
					end = i
					break scan
				}
			case depth == 0 && setFrom < 0 && strings.HasPrefix(sql[i:], "SET "):
				setFrom = i
			case depth == 0 && setFrom >= 0 && setTo < 0 && setEnd.MatchString(sql[i:]):
				setTo = i
			}
		}
		w.text = sql[m[0]:end]
		if setFrom >= 0 && w.verb == "UPDATE" {
			if setTo < 0 {
				setTo = end
			}
			w.set = sql[setFrom:setTo]
		}
		all = append(all, w)
	}
	return all
}
