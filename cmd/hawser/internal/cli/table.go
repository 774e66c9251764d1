package cli

import (
	"bytes"
	"io"
	"text/tabwriter"
)

// A table lines up tab-separated cells.
type table struct {
	*tabwriter.Writer
	text bytes.Buffer
	to   io.Writer
}

func newTable(w io.Writer) *table {
	t := &table{to: w}
	t.Writer = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

// flush writes the table, without the spaces that empty cells leave at the
// ends of lines.
func (t *table) flush() {
	// A bytes.Buffer takes all; who reads the output may have gone.
	_ = t.Flush()
	for line := range bytes.Lines(t.text.Bytes()) {
		_, _ = t.to.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
}
