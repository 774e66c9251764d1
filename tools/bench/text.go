package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
)

// letters name the servers in a comparison.
const letters = "AB"

// WriteText writes the report for a reader.
func (r *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	r.head(&b)
	r.table(&b)
	if len(r.Servers) == 2 {
		r.ratios(&b)
	}
	r.legend(&b)
	_, err := out.Write(b.Bytes())
	return err
}

func (r *Report) head(b *bytes.Buffer) {
	c := &r.Config
	for i, s := range r.Servers {
		name := "Server"
		if len(r.Servers) == 2 {
			name += " " + letters[i:i+1]
		}
		fmt.Fprintf(b, "%s: %s over NFSv4.%d, %d connection%s, %d slots\n", name, s.Server, c.Minor, c.Conns, plural(c.Conns), s.Slots)
	}
	fmt.Fprintf(b, "Client: no cache, %d CPUs (%s), %d job%s", r.Client.CPUs, r.Client.Arch, c.Jobs, plural(c.Jobs))
	if c.Depth > 1 {
		fmt.Fprintf(b, ", each with %d READs or WRITEs of its large file under way, or one operation of another kind", c.Depth)
	}
	fmt.Fprintf(b, "\nServer caches: %s\n", r.Caches)
	fmt.Fprintf(b, "Runs: %d of up to %v each, after %d for warm-up", c.Runs, c.Duration, c.Warmup)
	if len(r.Servers) == 2 {
		fmt.Fprint(b, ", A and B in turns")
	}
	how := "WRITEs ask for UNSTABLE, and COMMIT ends each file or run (within what is measured)"
	if c.Sync {
		how = "WRITEs ask for FILE_SYNC"
	}
	fmt.Fprintf(b, "; %s\n", how)
	fmt.Fprintf(b, "Data: files of %s in blocks of %s, or of %s at random; %d small files of %s; seed %d\n",
		size(c.FileSize), size(int64(c.Block)), size(int64(c.RandomBlock)), c.Files, size(int64(c.SmallSize)), c.Seed)
	fmt.Fprintf(b, "Figures: medians over the runs, ± half of the range that they lie in; MB are 10^6 bytes\n\n")
}

// table writes a line for each workload and server.
func (r *Report) table(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	two := len(r.Servers) == 2
	server := ""
	if two {
		server = "\t"
	}
	fmt.Fprintf(t, "WORKLOAD%s\tOPS/S\t\tMB/S\tENTRIES/S\tP50\t\tP95\t\tP99\t\tP99.9\t\tDURABLE\n", server)
	for _, w := range r.Workloads {
		for i := range w.Results {
			s := &w.Results[i]
			if two {
				server = "\t" + letters[i:i+1]
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\t%s", w.Name, server, number(s.OpsRate.Median), s.OpsRate.noise(), optional(s.MBRate), optional(s.EntryRate))
			for _, p := range []Spread{s.P50, s.P95, s.P99, s.P999} {
				fmt.Fprintf(t, "\t%s\t%s", micros(p.Median), p.noise())
			}
			fmt.Fprintf(t, "\t%s\n", s.Durability)
		}
	}
	flush(b, t)
}

// ratios compares the servers.
func (r *Report) ratios(b *bytes.Buffer) {
	fmt.Fprint(b, "\nA divided by B, run by run: median (least to most)\n\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "WORKLOAD\tRATE\tP50\tP99\n")
	for _, w := range r.Workloads {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", w.Name, w.Ratio.Rate, w.Ratio.P50, w.Ratio.P99)
	}
	flush(b, t)
}

// legend says what an operation is.
func (r *Report) legend(b *bytes.Buffer) {
	fmt.Fprint(b, "\nWhat an operation is, and so what the latencies are of:\n\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	written := false
	for _, w := range r.Workloads {
		fmt.Fprintf(t, "%s\t%s\n", w.Name, w.Op)
		for _, s := range w.Results {
			written = written || s.Durability != ""
		}
	}
	flush(b, t)
	if written {
		fmt.Fprint(b, "\nDURABLE is when the server says that data is on stable storage: as it acknowledges each WRITE, or at COMMIT.\n"+
			"By the protocol, names that are made and removed are so when that is acknowledged. Whether any of it is true,\n"+
			"this benchmark can't tell.\n")
	}
}

// flush writes a table without the spaces that empty cells leave at the ends
// of lines.
func flush(b *bytes.Buffer, t *tabwriter.Writer) {
	before := b.Len()
	_ = t.Flush() // to memory
	text := string(b.Bytes()[before:])
	b.Truncate(before)
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func size(n int64) string { return humanize.IBytes(uint64(n)) }

// String returns the median and the range of a ratio.
func (s Spread) String() string { return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Min, s.Max) }

// noise is half of the range, of the median.
func (s Spread) noise() string {
	if s.Median == 0 {
		return ""
	}
	return fmt.Sprintf("±%.0f%%", 100*(s.Max-s.Min)/2/s.Median)
}

// number writes three digits or more.
func number(v float64) string {
	switch {
	case v >= 100:
		return humanize.Comma(int64(math.Round(v)))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// optional is a number, or nothing for 0.
func optional(s Spread) string {
	if s.Max == 0 {
		return ""
	}
	return number(s.Median)
}

// micros writes microseconds with three digits.
func micros(us float64) string {
	d := time.Duration(us * float64(time.Microsecond))
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.3gs", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3gms", us/1e3)
	}
	return fmt.Sprintf("%.3gµs", us)
}
