// Command reference writes docs/nfs.md: what the NFS server supports, from the tables
// by which it executes requests, and what that means for clients.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/proto"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: reference FILE")
	}
	if err := os.WriteFile(os.Args[1], []byte(reference()), 0o644); err != nil {
		log.Fatal(err)
	}
}

// reference returns the whole document.
func reference() string {
	return intro + operations() + attributes() + missing + mounting + restarts + delegations
}

var minors = []uint32{0, 1, 2}

// operations returns the table of operations.
func operations() string {
	var b strings.Builder
	b.WriteString(operationsHead)
	for o := proto.OpAccess; o <= proto.MaxOp42; o++ {
		fmt.Fprintf(&b, "| %v |", o)
		for _, minor := range minors {
			fmt.Fprintf(&b, " %s |", support(o, minor))
		}
		fmt.Fprintf(&b, " %s |\n", remarks[o])
	}
	return b.String()
}

func support(o proto.Op, minor uint32) string {
	switch nfs4.OpSupport(o, minor) {
	case nfs4.Supported:
		return "yes"
	case nfs4.NotSupported:
		return "NOTSUPP"
	}
	return "illegal"
}

// attributes returns the table of attributes, and the list of those that are not there.
func attributes() string {
	var b strings.Builder
	b.WriteString(attributesHead)
	var rest []string
	for n := range proto.NumAttrs {
		name := proto.AttrName(n)
		if name == "" {
			continue
		}
		var use [3]string
		for i, minor := range minors {
			use[i] = readWrite(nfs4.AttrSupport(n, minor))
		}
		if use == [3]string{} {
			rest = append(rest, name)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, use[0], use[1], use[2], attrRemarks[n])
	}
	b.WriteString("\nNot supported: " + wrap(strings.Join(rest, ", "), len("Not supported: ")) + ".\n")
	return b.String()
}

func readWrite(read, write bool) string {
	switch {
	case read && write:
		return "read, set"
	case read:
		return "read"
	case write:
		return "set"
	}
	return ""
}

// wrap breaks a text, which begins at a column, into lines.
func wrap(text string, column int) string {
	const width = 118
	var b strings.Builder
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
