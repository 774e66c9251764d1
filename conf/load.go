package conf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// Load reads the configuration file ("": none), applies the environment's
// overrides and checks the whole. Every fault found is in the error, each
// with the file and line where it stands.
func Load(file string) (Config, error) {
	c := Default()
	v := viper.New()
	lines := map[string]int{}
	var faults []error
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("configuration: %w: name an existing file with --config", err)
		}
		if faults = scan(file, text, &c, lines); len(faults) > 0 {
			return c, errors.Join(faults...)
		}
		v.SetConfigType("yaml")
		if err := v.ReadConfig(strings.NewReader(string(text))); err != nil {
			return c, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, f := range fields(&c) {
		if f.section {
			continue
		}
		// BindEnv can only fail without arguments.
		_ = v.BindEnv(f.Path, f.Env())
		where := place(file, lines, f)
		if !v.IsSet(f.Path) {
			continue
		}
		var text string
		if _, list := f.value.Interface().([]string); list {
			text = strings.Join(v.GetStringSlice(f.Path), ",")
			if env, ok := os.LookupEnv(f.Env()); ok {
				text = env
			}
		} else {
			text = v.GetString(f.Path)
		}
		value, err := f.parse(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s%w", where, err))
			continue
		}
		f.value.Set(reflect.ValueOf(value))
		if err := f.checkRange(); err != nil {
			faults = append(faults, fmt.Errorf("%s%w", where, err))
		}
	}
	if len(faults) == 0 {
		c.derive()
		faults = c.check(func(path string) string {
			for _, f := range fields(&c) {
				if f.Path == path {
					return place(file, lines, f)
				}
			}
			return ""
		})
	}
	return c, errors.Join(faults...)
}

// removed are settings of earlier versions. Files may still have them, since
// `hawser dev` and `hawser config defaults` write all that there are; they mean
// nothing any more.
var removed = map[string]bool{
	"nfs.grace": true, // clients lose nothing when a front-end restarts, so there is nothing to reclaim
}

// place says where a field got its value, for an error.
func place(file string, lines map[string]int, f *Field) string {
	if _, ok := os.LookupEnv(f.Env()); ok {
		return "environment variable " + f.Env() + ": "
	}
	if n, ok := lines[f.Path]; ok {
		return fmt.Sprintf("%s:%d: ", file, n)
	}
	return ""
}

// scan finds unknown and doubled keys and values of the wrong shape, with
// their lines, which it records for the known ones.
func scan(file string, text []byte, c *Config, lines map[string]int) (faults []error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return []error{fmt.Errorf("%s: %w", file, err)}
	}
	if len(doc.Content) == 0 {
		return nil
	}
	known := map[string]*Field{}
	for _, f := range fields(c) {
		known[f.Path] = f
	}
	at := func(n *yaml.Node, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s:%d: %s", file, n.Line, fmt.Sprintf(format, args...)))
	}
	var walk func(n *yaml.Node, prefix string)
	walk = func(n *yaml.Node, prefix string) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			path := prefix + key.Value
			f := known[path]
			if f == nil && removed[path] {
				continue
			}
			if f == nil {
				at(key, "unknown setting %s: did you mean %s? `hawser config defaults` lists all", path, nearest(path, known))
				continue
			}
			if _, twice := lines[path]; twice {
				at(key, "%s is set twice: keep one", path)
			}
			lines[path] = key.Line
			_, list := f.value.Interface().([]string)
			empty := value.Kind == yaml.ScalarNode && value.Tag == "!!null"
			switch {
			case empty:
			case f.section && value.Kind != yaml.MappingNode:
				at(value, "%s is a section: put its settings below it, indented", path)
			case f.section:
				walk(value, path+".")
			case list && value.Kind != yaml.SequenceNode:
				at(value, "%s is a list: write it like [a, b]", path)
			case list:
				for _, item := range value.Content {
					if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
						at(item, "%s: each item must be a plain text without commas", path)
					}
				}
			case !list && value.Kind != yaml.ScalarNode:
				at(value, "%s is a single value, not a list or section", path)
			}
		}
	}
	if root := doc.Content[0]; root.Kind == yaml.MappingNode {
		walk(root, "")
	} else {
		at(root, "the file must hold sections such as node: and listen:")
	}
	return faults
}

// nearest returns the known path that takes the fewest edits to reach.
func nearest(path string, known map[string]*Field) string {
	best, least := "", 1<<30
	for k := range known {
		if d := distance(path, k); d < least || d == least && k < best {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

var nodeName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)

// derive fills in the settings whose defaults depend on others.
func (c *Config) derive() {
	if c.Node.Name == "" {
		c.Node.Name, _ = os.Hostname()
	}
	if len(c.Node.Disks) == 0 {
		c.Node.Disks = []string{filepath.Join(c.Node.Data, "disk")}
	}
	if c.Listen.Advertise == "" {
		c.Listen.Advertise = c.Listen.Peer
	}
	if c.Listen.Admin == "" {
		c.Listen.Admin = filepath.Join(c.Node.Data, "admin.sock")
	}
}

// MaxSocketPath is how long listen.admin may be, in bytes: what sun_path holds on Linux, less its final NUL.
const MaxSocketPath = 107

// check finds what is wrong between settings.
func (c *Config) check(where func(path string) string) (faults []error) {
	fault := func(path, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s%s %w", where(path), path, fmt.Errorf(format, args...)))
	}
	if !nodeName.MatchString(c.Node.Name) {
		fault("node.name", "is %q: use 1 to 63 letters, digits, dots, dashes and underscores", c.Node.Name)
	}
	if len(c.Node.Roles) == 0 {
		fault("node.roles", "is empty: give at least one of meta, data, nfs")
	}
	address := func(path, addr string, wildcard bool) {
		host, port, err := net.SplitHostPort(addr)
		switch ip := net.ParseIP(host); {
		case err != nil || port == "":
			fault(path, "is %q: write it as HOST:PORT, like 10.0.0.1:7420", addr)
		case !wildcard && (host == "" || ip != nil && ip.IsUnspecified()):
			fault(path, "is %q, which other nodes can't connect to: set listen.advertise to this node's own address", addr)
		}
	}
	address("listen.peer", c.Listen.Peer, true)
	address("listen.advertise", c.Listen.Advertise, false)
	for _, a := range c.Listen.NFS {
		address("listen.nfs", a, true)
	}
	if contains(c.Node.Roles, "nfs") && len(c.Listen.NFS) == 0 {
		fault("listen.nfs", "is empty: name the addresses that clients mount, or leave nfs out of node.roles")
	}
	if n := len(c.Listen.Admin); n > MaxSocketPath {
		fault("listen.admin", "is a path of %d bytes, and a Unix socket's may have %d: choose a shorter one", n, MaxSocketPath)
	}
	at := map[netip.Addr]bool{}
	for _, text := range c.Addresses.Floating {
		a, err := ParseFloating(text)
		switch {
		case err != nil:
			fault("addresses.floating", "item %w", err)
		case at[a.Prefix.Addr()]:
			fault("addresses.floating", "names %s twice", a.Prefix.Addr())
		}
		at[a.Prefix.Addr()] = true
	}
	for _, own := range append([]string{c.Listen.Advertise, c.Listen.Peer}, c.Listen.NFS...) {
		if p, err := netip.ParseAddrPort(own); err == nil && at[p.Addr()] {
			fault("addresses.floating", "names %s, which is this node's own address (%s): a floating address must be one that no machine has", p.Addr(), own)
		}
	}
	if c.Health.TakeoverAfter >= c.Health.DownAfter {
		fault("health.takeover_after", "is not less than health.down_after (%s): addresses move before a node counts as down", shortDuration(c.Health.DownAfter))
	}
	if c.Health.FenceAfter < c.Health.DownAfter {
		fault("health.fence_after", "is less than health.down_after (%s): a node is fenced only after it is down", shortDuration(c.Health.DownAfter))
	}
	seen := map[string]bool{}
	for _, d := range c.Node.Disks {
		if clean := filepath.Clean(d); seen[clean] {
			fault("node.disks", "names %s twice: each disk has one store", d)
		} else {
			seen[clean] = true
		}
	}
	return faults
}

// CheckFolders makes the folders that the node writes to and tries to write
// in each, so that a wrong one is found at start and not at the first file.
func (c *Config) CheckFolders() error {
	var faults []error
	for _, dir := range append([]string{c.Node.Data}, c.Node.Disks...) {
		if err := tryFolder(dir); err != nil {
			faults = append(faults, fmt.Errorf("folder %s can't be written (%w): make it, or give it to the user that hawser runs as", dir, err))
		}
	}
	return errors.Join(faults...)
}

func tryFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".hawser-write-test-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
