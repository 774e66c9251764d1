package conf

import (
	"fmt"
	"strings"
)

// YAML writes c as a configuration file with a comment above each setting.
func YAML(c Config) string {
	var b strings.Builder
	for _, f := range fields(&c) {
		if f.section {
			fmt.Fprintf(&b, "# %s\n%s:\n", f.Desc, f.Path)
			continue
		}
		fmt.Fprintf(&b, "  # %s%s\n", f.Desc, parenthesis(f.Allowed))
		fmt.Fprintf(&b, "  %s: %s\n", f.Path[strings.LastIndexByte(f.Path, '.')+1:], f.text())
	}
	return b.String()
}

// Reference writes docs/configuration.md.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration reference\n\n" +
		"Made from package conf by `go generate ./conf`; don't edit.\n\n" +
		"A node reads one YAML file (`hawser server --config FILE`). Each setting can be overridden by the environment\n" +
		"variable beside it. `hawser config check FILE` says what is wrong with a file, `hawser config show` what a node\n" +
		"would run with, `hawser config defaults` prints a commented file. Sizes take units (512MiB, 10GB), durations too\n" +
		"(500ms, 30s, 1h). An unknown setting, a wrong type or a value out of range stops the node at start.\n")
	c := Default()
	for _, f := range fields(&c) {
		if f.section {
			fmt.Fprintf(&b, "\n## %s: %s\n\n| setting | default | allowed | meaning | environment |\n|---|---|---|---|---|\n", f.Path, f.Desc)
			continue
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | `%s` |\n", f.Path, f.Default, f.Allowed, f.Desc, f.Env())
	}
	return b.String()
}

func parenthesis(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
