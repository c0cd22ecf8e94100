// Who may import whom, and how files begin, read from the files.

package tidings_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tidings-project/tidings"

// house says which of our packages a package may import, by the longest prefix of its path below the module; "" is the
// vocabulary, "*" allows everything. Tests may import more: they are not part of the house.
var house = map[string][]string{
	".":                   {},
	"channel":             {""},
	"channel/channeltest": {"", "channel", "channel/webhook"},
	"channel/smtp":        {"", "channel"},
	"channel/webhook":     {"", "channel"},
	"outbox":              {""},
	"schema":              {""},
	"internal/bus":        {""},
	"internal/outside":    {""},
	"internal/store":      {"", "internal/outside"},
	"internal/localpg":    {"", "schema"},
	"internal/wire":       {""},
	"internal/token":      {""},
	"internal/gateway":    {"", "outbox", "internal/bus", "internal/store", "internal/token", "internal/wire"},
	"client":              {"", "internal/wire"},
	"dispatch":            {"", "channel", "outbox", "internal/bus", "internal/store"},
	"internal/api":        {"", "channel", "outbox", "internal/store", "internal/token", "internal/wire"},
	"console":             {},
	"internal/server": {"", "channel", "channel/channeltest", "channel/smtp", "channel/webhook", "console", "outbox", "schema", "dispatch", "internal/api",
		"internal/bus", "internal/gateway", "internal/outside", "internal/store", "internal/token", "internal/wire"},
	"cmd":      {"*"},
	"examples": {"", "channel/webhook", "client", "outbox"},
	"lab":      {"", "channel", "channel/channeltest", "channel/smtp", "channel/webhook", "outbox", "dispatch", "client", "lab", "internal/localpg"},
}

// databasePackages are the only ones that may use pgx. dispatch and the wiring take the application's pool and hand it on.
var databasePackages = []string{"internal/store", "outbox", "internal/bus", "schema", "internal/localpg", "dispatch", "internal/server",
	"cmd", "examples", "lab", "internal/api"}

// onlyPool are those of them that may name a pool or a connection's configuration but hold no SQL.
var onlyPool = []string{"dispatch", "internal/server", "internal/api"}

func TestImportsRunOneWay(t *testing.T) {
	files := sourceFiles(t, false)
	if len(files) < 20 {
		t.Fatalf("only %d files were found", len(files))
	}
	seen := map[string]bool{}
	for _, file := range files {
		dir := filepath.ToSlash(filepath.Dir(file))
		rule := ruleFor(dir)
		if rule == "" {
			t.Errorf("%s: no rule says what %s may import", file, dir)
			continue
		}
		seen[rule] = true
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			switch {
			case path == module || strings.HasPrefix(path, module+"/"):
				if !allowed(house[rule], dir, strings.TrimPrefix(strings.TrimPrefix(path, module), "/")) {
					t.Errorf("%s imports %s", file, path)
				}
			case dir == "." && strings.Contains(strings.Split(path, "/")[0], "."):
				t.Errorf("%s imports %s: the vocabulary uses the standard library only", file, path)
			case strings.HasPrefix(path, "github.com/jackc/pgx") && !slices.Contains(databasePackages, rule):
				t.Errorf("%s imports %s", file, path)
			case strings.HasPrefix(path, "github.com/jackc/pgx") && slices.Contains(onlyPool, rule) && path != "github.com/jackc/pgx/v5/pgxpool":
				t.Errorf("%s imports %s: only the pool is handed through here", file, path)
			}
		}
	}
	for rule := range house {
		if !seen[rule] {
			t.Errorf("the rule for %q speaks of no file", rule)
		}
	}
}

func ruleFor(dir string) string {
	for {
		if _, ok := house[dir]; ok {
			return dir
		}
		if dir == "." || !strings.Contains(dir, "/") {
			return ""
		}
		dir = dir[:strings.LastIndex(dir, "/")]
	}
}

func allowed(rule []string, dir, path string) bool {
	if strings.HasPrefix(path+"/", ruleFor(dir)+"/") {
		return true // within one part of the house
	}
	for _, may := range rule {
		if may == "*" || path == may || may == "lab" && strings.HasPrefix(path, "lab/") {
			return true
		}
	}
	return false
}

// A file says first what it is about.
func TestFilesBeginWithAComment(t *testing.T) {
	for _, file := range append(sourceFiles(t, false), sourceFiles(t, true)...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "// ") {
			t.Errorf("%s does not begin with a comment", file)
		}
	}
}

// sourceFiles are the Go files of the module that are tests, or those that are not, without other modules and what is ignored.
func sourceFiles(t *testing.T, tests bool) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bench" || path == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests:
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
