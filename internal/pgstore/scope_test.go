package pgstore_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var queryName = regexp.MustCompile(`(?m)^-- name: (\w+) `)

// A query of a tenant's table that is asked in the scope of all has lost its second wall.
func TestOnlyQueriesThatMustCrossTenantsRunInTheScopeOfAll(t *testing.T) {
	t.Parallel()
	besides := []string{"CreateTenant", "Tenants", "TenantBySlug", "SetActor"} // of tenant.sql
	mayCross := map[string]bool{}
	for _, file := range must(filepath.Glob("../../db/queries/*.sql"))(t) {
		text := string(must(os.ReadFile(file))(t))
		isPlatforms := filepath.Base(file) == "platform.sql" || !strings.Contains(text, "tenant_id")
		for _, name := range queryName.FindAllStringSubmatch(text, -1) {
			mayCross[name[1]] = isPlatforms || slices.Contains(besides, name[1])
		}
	}
	var found int
	for _, file := range must(filepath.Glob("*.go"))(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		ast.Inspect(must(parser.ParseFile(set, file, nil, 0))(t), func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || !slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
				name, ok := arg.(*ast.Ident)
				return ok && name.Name == "everyTenant"
			}) {
				return true
			}
			ast.Inspect(call.Args[len(call.Args)-1], func(node ast.Node) bool {
				method, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := method.X.(*ast.Ident); ok && (of.Name == "q" || of.Name == "queries") {
					if allowed, isQuery := mayCross[method.Sel.Name]; isQuery {
						found++
						if !allowed {
							t.Errorf("%s: %s is asked in the scope of every tenant", set.Position(method.Pos()),
								method.Sel.Name)
						}
					}
				}
				return true
			})
			return true
		})
	}
	if found < 20 {
		t.Errorf("only %d queries were found", found)
	}
}
