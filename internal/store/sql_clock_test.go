// Holds the code to the database's clock.

package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// What is decided by time is decided by the database's clock: this process's is no argument of a statement.
func TestNoClockOfOursInSQL(t *testing.T) {
	for _, dir := range sqlPackages {
		for _, f := range sources(t, dir) {
			if n := clockArguments(f); n > 0 {
				t.Errorf("%d SQL arguments in package %s come from time.Now", n, f.Name)
			}
		}
	}
	for _, bad := range []string{
		`args := pgx.NamedArgs{"at": time.Now()}`,
		`args := pgx.NamedArgs{"at": time.Now().Add(d).UnixMilli()}`,
		`now := time.Now().UTC(); args := pgx.NamedArgs{"at": now.Add(d)}`,
		`var now = time.Now(); args["at"] = &now`,
		`var t time.Time; t = time.Now(); _ = args; pool.Exec(ctx, sql, t)`,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {\n"+bad+"\n}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if clockArguments(f) == 0 {
			t.Errorf("nothing is found in %s", bad)
		}
	}
}

// clockArguments counts the SQL arguments of a file that come from time.Now: directly, or by a variable that was set from it.
func clockArguments(f *ast.File) (n int) {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		tainted := map[string]bool{}
		fromClock := func(e ast.Expr) (yes bool) {
			ast.Inspect(e, func(node ast.Node) bool {
				switch x := node.(type) {
				case *ast.SelectorExpr:
					if p, ok := x.X.(*ast.Ident); ok && p.Name == "time" && x.Sel.Name == "Now" {
						yes = true
					}
				case *ast.Ident:
					yes = yes || tainted[x.Name]
				}
				return !yes
			})
			return yes
		}
		ast.Inspect(fn.Body, func(node ast.Node) bool {
			switch x := node.(type) {
			case *ast.AssignStmt:
				for i, right := range x.Rhs {
					if i >= len(x.Lhs) || !clockChain(right) {
						continue
					}
					if name, ok := x.Lhs[i].(*ast.Ident); ok {
						tainted[name.Name] = true
					}
				}
			case *ast.ValueSpec:
				for i, right := range x.Values {
					tainted[x.Names[i].Name] = tainted[x.Names[i].Name] || clockChain(right)
				}
			}
			return true
		})
		ast.Inspect(fn.Body, func(node ast.Node) bool {
			switch x := node.(type) {
			case *ast.CompositeLit:
				if s, ok := x.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "NamedArgs" && slices.ContainsFunc(x.Elts, fromClock) {
					n++
				}
			case *ast.AssignStmt:
				for i, left := range x.Lhs {
					if index, ok := left.(*ast.IndexExpr); ok && i < len(x.Rhs) && fromClock(x.Rhs[i]) {
						if name, ok := index.X.(*ast.Ident); ok && name.Name == "args" {
							n++
						}
					}
				}
			case *ast.CallExpr:
				if s, ok := x.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Exec", "Query", "QueryRow", "Queue"}, s.Sel.Name) && slices.ContainsFunc(x.Args, fromClock) {
					n++
				}
			}
			return true
		})
	}
	return n
}

// clockChain tells whether e is time.Now() or a method of what it returns.
func clockChain(e ast.Expr) bool {
	for {
		call, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if p, ok := s.X.(*ast.Ident); ok {
			return p.Name == "time" && s.Sel.Name == "Now"
		}
		e = s.X
	}
}
