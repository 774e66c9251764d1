package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file in testdata.
func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(text, want) {
		t.Errorf("%s: %v; run with -update if this is meant:\n%s", file, err, text)
	}
}

// sample is a report of figures that are made up.
func sample(servers int) *Report {
	cfg := Default()
	cfg.Jobs = 16
	r := &Report{
		Config: cfg,
		Client: ClientInfo{CPUs: 8, Arch: "amd64", Cache: "none"},
		Caches: "warm: what is read was written or read shortly before",
	}
	for i := range servers {
		r.Servers = append(r.Servers, ServerInfo{Server{[]string{"10.0.0.1:2049", "10.0.0.9:2049"}[i], "main"}, 64})
	}
	for wi, w := range []*workload{seqWrite, create, readdir} {
		r.Config.Workloads = append(r.Config.Workloads, w.name)
		report := WorkloadReport{Name: w.name, Op: w.op, Results: make([]Result, servers)}
		for i := range servers {
			for run := range 3 {
				v := float64(1+run) * float64(1+i)
				f := Figures{Ops: uint64(1000 * v), Seconds: 2, P50: 90 * v, P95: 950 * v, P99: 12500 * v, P999: 2.5e6 * v, Max: 3e8}
				switch wi {
				case 0:
					f.Bytes, f.Unstable, f.Stable = int64(f.Ops)<<20, 7, int64(7*i)
				case 2:
					f.Entries = int64(f.Ops) * 100
				}
				report.Results[i].Runs = append(report.Results[i].Runs, f)
			}
		}
		r.Workloads = append(r.Workloads, report)
	}
	r.sum()
	return r
}

func TestReportText(t *testing.T) {
	for name, servers := range map[string]int{"one.txt": 1, "two.txt": 2} {
		var b bytes.Buffer
		if err := sample(servers).WriteText(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
	}
}

func TestReportJSON(t *testing.T) {
	text, err := json.MarshalIndent(sample(2), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "two.json", append(text, '\n'))
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{3, 1}, Spread{2, 1, 3}},
		{[]float64{3, 1, 10}, Spread{3, 1, 10}},
	} {
		if got := spread(len(c.v), func(i int) float64 { return c.v[i] }); got != c.want {
			t.Errorf("spread of %v is %v, want %v", c.v, got, c.want)
		}
	}
}

func TestRatioIsRunByRun(t *testing.T) {
	r := []Result{
		{Runs: []Figures{{Ops: 10, Seconds: 1}, {Ops: 40, Seconds: 1}}},
		{Runs: []Figures{{Ops: 5, Seconds: 1}, {Ops: 10, Seconds: 1}}},
	}
	if got := ratio(r, Figures.rate); got != (Spread{3, 2, 4}) {
		t.Errorf("ratio %v", got)
	}
}

func TestMicros(t *testing.T) {
	for us, want := range map[float64]string{
		0.5: "0.5µs", 12.34: "12.3µs", 999: "999µs", 1234: "1.23ms", 56789: "56.8ms", 1.5e6: "1.5s", 1.2e8: "2m0s",
	} {
		if got := micros(us); got != want {
			t.Errorf("%v µs is %s, want %s", us, got, want)
		}
	}
	if got := micros(float64(time.Hour / time.Microsecond)); got != "1h0m0s" {
		t.Errorf("an hour is %s", got)
	}
}
