package lint

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/hawserfs/hawser/"

// layers says what each part of the tree may import of the project; the
// longest matching prefix holds. Everything may import package cluster, which
// has types only. cmd and tools stand above all others.
var layers = map[string][]string{
	"cmd":               {"*"},
	"tools":             {"*"},
	"conf":              {},
	"nfsd":              {"vfs"},
	"nfsd/client":       {},
	"nfsd/oncrpc":       {},
	"nfsd/xdr":          {},
	"nfsd/proto":        {},
	"vfs":               {"cluster", "datastore"},
	"vfs/memfs":         {},
	"vfs/vfstest":       {},
	"cluster":           {},
	"cluster/peer":      {},
	"cluster/address":   {},
	"cluster/fsm":       {},
	"cluster/group":     {"cluster/peer"},
	"cluster/member":    {"cluster/peer", "cluster/group", "cluster/fsm"},
	"datastore":         {"cluster/peer"},
	"datastore/segment": {},
}

// pure lists the cores that must not know of sockets, and what stands for them.
var pure = map[string][]string{
	"cluster/fsm":       {"net", "github.com/hashicorp/raft", "math/rand", "math/rand/v2", "crypto/rand"},
	"datastore/segment": {"net", "math/rand", "math/rand/v2"},
	"nfsd/state":        {"net", "math/rand", "math/rand/v2", "crypto/rand"},
}

func TestImportsPointDown(t *testing.T) {
	files := 0
	walk(t, func(dir, path string, test bool, imports []string) {
		files++
		for _, imp := range imports {
			inner, ours := strings.CutPrefix(imp, module)
			if !ours {
				if forbidden := longest(pure, dir); !test && contains(forbidden, imp) {
					t.Errorf("%s imports %s: the cores of %s are pure, pass it in", path, imp, dir)
				}
				continue
			}
			if inner == "cluster" || sameRoom(dir, inner) {
				continue
			}
			allowed := longest(layers, dir)
			if test {
				// A test may also stand on the twins and suites of other rooms,
				// and exercise its package with what is below or beside it.
				allowed = append([]string{"vfs", "nfsd", "cluster", "datastore", "tools/kclient"}, allowed...)
			}
			if !covers(allowed, inner) {
				t.Errorf("%s imports %s: %s may import %v of the project (see docs/architecture.md)", path, inner, dir, allowed)
			}
		}
	})
	if files < 20 {
		t.Fatalf("only %d files found: the walk is broken", files)
	}
}

// TestEveryPackageSaysWhatItIs holds each package to a doc comment.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	eachFile(t, func(dir, path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		documented[dir] = documented[dir] || f.Doc != nil
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// sameRoom allows imports within a package's own subtree, and of a parent by
// its children.
func sameRoom(dir, imp string) bool {
	return dir == imp || strings.HasPrefix(imp, dir+"/") || strings.HasPrefix(dir, imp+"/") ||
		strings.HasPrefix(dir, "nfsd") && strings.HasPrefix(imp, "nfsd/") ||
		strings.HasPrefix(dir, "datastore") && strings.HasPrefix(imp, "datastore") ||
		strings.HasPrefix(dir, "cluster/fsm") && strings.HasPrefix(imp, "cluster/fsm") ||
		strings.HasPrefix(dir, "vfs/vfstest") && imp == "vfs" || strings.HasPrefix(dir, "vfs/memfs") && imp == "vfs"
}

func longest[V any](rules map[string]V, dir string) (rule V) {
	best := -1
	for prefix, v := range rules {
		if (dir == prefix || strings.HasPrefix(dir, prefix+"/")) && len(prefix) > best {
			best, rule = len(prefix), v
		}
	}
	return rule
}

func covers(allowed []string, imp string) bool {
	for _, a := range allowed {
		if a == "*" || imp == a || strings.HasPrefix(imp, a+"/") {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// walk parses the imports of every Go file of the project.
func walk(t *testing.T, fn func(dir, path string, test bool, imports []string)) {
	eachFile(t, func(dir, path string) {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		var imports []string
		for _, i := range f.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports = append(imports, imp)
		}
		fn(dir, path, strings.HasSuffix(path, "_test.go"), imports)
	})
}

func eachFile(t *testing.T, fn func(dir, path string)) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			return err
		}
		fn(filepath.ToSlash(dir), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
