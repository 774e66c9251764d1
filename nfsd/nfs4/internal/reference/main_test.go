package main

import (
	"os"
	"strings"
	"testing"

	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/proto"
)

func TestCurrent(t *testing.T) {
	const file = "../../../../docs/nfs.md"
	text, err := os.ReadFile(file)
	if err != nil || string(text) != reference() {
		t.Errorf("docs/nfs.md is not current (%v): run go generate ./nfsd/nfs4", err)
	}
}

// What is not supported says what a client does without it, and nothing says so
// of what is.
func TestRemarks(t *testing.T) {
	for o := proto.OpAccess; o <= proto.MaxOp42; o++ {
		if nfs4.OpSupport(o, 2) == nfs4.NotSupported && remarks[o] == "" {
			t.Errorf("%v is not supported: remarks has to say what a client does then", o)
		}
		if nfs4.OpSupport(o, 2) == nfs4.Supported && (strings.Contains(remarks[o], "never sends") || strings.HasPrefix(remarks[o], "no pNFS")) {
			t.Errorf("%v is supported; its remark says %q", o, remarks[o])
		}
	}
	for n := range attrRemarks {
		if read, write := nfs4.AttrSupport(n, 2); !read && !write {
			t.Errorf("%s has a remark and is not supported", proto.AttrName(n))
		}
	}
}
