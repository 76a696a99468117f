package panics_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recovered are the other places that start goroutines, each with its recovery from panics.
var recovered = map[string]string{
	"internal/jobs/panics/panics.go: Go":         "Do",
	"internal/jobs/panics/panics.go: Group.Go":   "Do",
	"internal/jobs/panics/panics.go: Group.Loop": "Loop",
	"internal/app/parts.go: Parts.Go":            "panics.Do",
	"internal/store/combine/combine.go: New":     "panics.Do, which starts the timer again",
	"internal/devdb/process.go: spawn":           "nothing: it only starts and awaits a server of a developer",
	"client/background.go: Client.background": "Client.recovered, because the client imports no package of " +
		"ours",
	"client/background.go: Client.loop":                "Client.recovered",
	"client/calm.go: Client.within":                    "nothing: it only waits and cancels a context",
	"client/watch.go: queue.look":                      "Client.recovered",
	"client/watch.go: watch.start":                     "Client.recovered, and the timer is started again",
	"internal/app/app.go: Main":                        "nothing: it only calls the standard library",
	"internal/checks/envoy/streams.go: limitMessage":   "nothing: it only cancels a context",
	"internal/rules/snapshot/watcher.go: Watcher.read": "nothing: it only cancels a context",
}

var forTests = []string{
	"bench", "internal/certs/certstest", "internal/devdb/awake", "internal/devdb/devdbtest",
	"internal/enforce/leasesim",
	"internal/notify/mailer/smtptest", "internal/oidc/oidctest", "internal/store/buckettest",
}

func TestEachGoroutineIsRecovered(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case entry.IsDir():
			if slices.Contains(forTests, name) || entry.Name() == "node_modules" ||
				strings.HasPrefix(entry.Name(), ".") &&
					entry.Name() != ".." {
				return fs.SkipDir
			}
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, place := range starters(t, text) {
				found[name+": "+place] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if recovered[place] == "" {
			t.Errorf("%s starts a goroutine that this test does not know; use panics.Go, a panics.Group or panics.Loop",
				place)
		}
	}
	for place := range recovered {
		if !found[place] {
			t.Errorf("%s starts no goroutine any more; remove it from the list", place)
		}
	}
}

func starters(t *testing.T, text []byte) (places []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		place := "a variable"
		if f, ok := decl.(*ast.FuncDecl); ok {
			place = f.Name.Name
			if f.Recv != nil {
				place = receiver(f.Recv.List[0].Type) + "." + place
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				places = append(places, place)
			case *ast.CallExpr:
				called, ok := n.Fun.(*ast.SelectorExpr)
				if ok && (called.Sel.Name == "AfterFunc" || called.Sel.Name == "Go" && len(n.Args) == 1) {
					places = append(places, place)
				}
			}
			return true
		})
	}
	return places
}

func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func TestAGoroutineThatTheListDoesNotKnowIsFound(t *testing.T) {
	t.Parallel()
	const text = `package p
func (s *store[T]) run() { go func() {}() }
func walk() { var g sync.WaitGroup; g.Go(func() {}) }
func later() { time.AfterFunc(1, func() {}) }
func ours() { panics.Go(log, "x", func() {}); group.Go(log, "x", func() {}) }`
	if got := starters(t, []byte(text)); !slices.Equal(got, []string{"store.run", "walk", "later"}) {
		t.Errorf("found %q", got)
	}
}
