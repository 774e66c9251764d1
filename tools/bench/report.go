package bench

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A Report is what was measured.
type Report struct {
	Config    Config           `json:"settings"`
	Client    ClientInfo       `json:"client"`
	Servers   []ServerInfo     `json:"servers"`
	Caches    string           `json:"server_caches"` // warm, or how they were made cold
	Workloads []WorkloadReport `json:"workloads"`
}

// ClientInfo is what measured.
type ClientInfo struct {
	CPUs  int    `json:"cpus"`
	Arch  string `json:"arch"`
	Cache string `json:"cache"`
}

// ServerInfo is what was measured.
type ServerInfo struct {
	Server
	Slots int `json:"slots"` // requests that the session may have under way
}

// A WorkloadReport is what was measured of a workload: a Result for each
// server, and with two of them their ratios.
type WorkloadReport struct {
	Name    string   `json:"name"`
	Op      string   `json:"operation"`
	Results []Result `json:"results"`
	Ratio   *Ratio   `json:"ratio,omitempty"`
}

// A Result is what was measured of a workload on a server.
type Result struct {
	Runs       []Figures `json:"runs"`
	OpsRate    Spread    `json:"ops_per_second"`
	EntryRate  Spread    `json:"entries_per_second"`
	MBRate     Spread    `json:"megabytes_per_second"` // 10^6 bytes
	P50        Spread    `json:"p50_us"`
	P95        Spread    `json:"p95_us"`
	P99        Spread    `json:"p99_us"`
	P999       Spread    `json:"p99_9_us"`
	Durability string    `json:"durability"`
}

// Figures are those of one run.
type Figures struct {
	Ops      uint64  `json:"ops"`
	Entries  int64   `json:"entries"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Unstable int64   `json:"writes_unstable"` // WRITEs acknowledged as UNSTABLE
	Stable   int64   `json:"writes_stable"`   // … as DATA_SYNC or FILE_SYNC
	P50      float64 `json:"p50_us"`
	P95      float64 `json:"p95_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p99_9_us"`
	Max      float64 `json:"max_us"`
}

// A Spread is the median over the runs, the least and the most.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// A Ratio is the first server's figure divided by the second's, run by run.
type Ratio struct {
	Rate Spread `json:"rate"` // of operations or, where they are listed, of entries
	P50  Spread `json:"p50"`
	P99  Spread `json:"p99"`
}

func newReport(cfg *Config, list []*workload, targets []*target) *Report {
	r := &Report{
		Config: *cfg,
		Client: ClientInfo{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH, Cache: "none: every operation goes to the server"},
		Caches: "warm: what is read was written or read shortly before",
	}
	if cfg.DropCaches != nil {
		r.Caches = "cold at the start of each run that reads: a command given for that was run before"
	}
	r.Config.Workloads = nil
	for _, t := range targets {
		r.Servers = append(r.Servers, ServerInfo{Server: t.server, Slots: t.c.Slots()})
	}
	for _, w := range list {
		r.Config.Workloads = append(r.Config.Workloads, w.name)
		r.Workloads = append(r.Workloads, WorkloadReport{Name: w.name, Op: w.op, Results: make([]Result, len(targets))})
	}
	return r
}

// figures sums up a run.
func figures(took time.Duration, workers []worker) Figures {
	var all Histogram
	f := Figures{Seconds: took.Seconds()}
	var last *job
	for i := range workers {
		w := &workers[i]
		all.Merge(&w.hist)
		f.Bytes += w.bytes
		f.Entries += w.entries
		if w.job != last { // workers of a job follow each other
			last = w.job
			f.Unstable += w.unstable.Load()
			f.Stable += w.stable.Load()
		}
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	f.Ops = all.Count()
	f.P50, f.P95 = us(all.Quantile(0.5)), us(all.Quantile(0.95))
	f.P99, f.P999, f.Max = us(all.Quantile(0.99)), us(all.Quantile(0.999)), us(all.max)
	return f
}

// sum makes the medians, spreads and ratios of the runs.
func (r *Report) sum() {
	for wi := range r.Workloads {
		w := &r.Workloads[wi]
		for i := range w.Results {
			w.Results[i].sum()
		}
		if len(w.Results) == 2 {
			w.Ratio = &Ratio{
				Rate: ratio(w.Results, Figures.rate),
				P50:  ratio(w.Results, func(f Figures) float64 { return f.P50 }),
				P99:  ratio(w.Results, func(f Figures) float64 { return f.P99 }),
			}
		}
	}
}

// rate is what is compared: entries a second where there are some, else operations.
func (f Figures) rate() float64 {
	if f.Entries > 0 {
		return float64(f.Entries) / f.Seconds
	}
	return float64(f.Ops) / f.Seconds
}

func (r *Result) sum() {
	of := func(v func(Figures) float64) Spread {
		return spread(len(r.Runs), func(i int) float64 { return v(r.Runs[i]) })
	}
	r.OpsRate = of(func(f Figures) float64 { return float64(f.Ops) / f.Seconds })
	r.EntryRate = of(func(f Figures) float64 { return float64(f.Entries) / f.Seconds })
	r.MBRate = of(func(f Figures) float64 { return float64(f.Bytes) / f.Seconds / 1e6 })
	r.P50 = of(func(f Figures) float64 { return f.P50 })
	r.P95 = of(func(f Figures) float64 { return f.P95 })
	r.P99 = of(func(f Figures) float64 { return f.P99 })
	r.P999 = of(func(f Figures) float64 { return f.P999 })
	r.Durability = durability(r.Runs)
}

// durability says what the server said about what it acknowledged, "" if
// nothing was written.
func durability(runs []Figures) string {
	var unstable, stable int64
	for _, f := range runs {
		unstable += f.Unstable
		stable += f.Stable
	}
	var all []string
	if stable > 0 {
		all = append(all, "each WRITE")
	}
	if unstable > 0 {
		all = append(all, "at COMMIT")
	}
	return strings.Join(all, ", some ")
}

// spread returns the spread of n values.
func spread(n int, value func(i int) float64) Spread {
	if n == 0 {
		return Spread{}
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = value(i)
	}
	slices.SortFunc(v, cmp.Compare[float64])
	return Spread{Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1]}
}

// ratio returns the spread of the first server's figure by the second's.
func ratio(r []Result, value func(Figures) float64) Spread {
	return spread(min(len(r[0].Runs), len(r[1].Runs)), func(i int) float64 {
		b := value(r[1].Runs[i])
		if b == 0 {
			return 0
		}
		return value(r[0].Runs[i]) / b
	})
}
