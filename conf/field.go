package conf

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Field is one setting.
type Field struct {
	Path    string // dotted: nfs.lease
	Desc    string
	Default string
	Allowed string // range or choices, in words; empty: anything
	section bool
	value   reflect.Value
	tag     reflect.StructTag
}

// Env is the environment variable that overrides the field.
func (f *Field) Env() string {
	return "HAWSER_" + strings.ToUpper(strings.ReplaceAll(f.Path, ".", "_"))
}

// fields returns c's settings and, before those of each section, the section.
func fields(c *Config) []*Field {
	var out []*Field
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			t := v.Type().Field(i)
			f := &Field{Path: prefix + t.Tag.Get("conf"), Desc: t.Tag.Get("desc"), value: v.Field(i), tag: t.Tag}
			out = append(out, f)
			if t.Type.Kind() == reflect.Struct {
				f.section = true
				walk(v.Field(i), f.Path+".")
				continue
			}
			f.Default = f.text()
			f.Allowed = f.allowed()
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return out
}

// text writes the field's value as YAML has it.
func (f *Field) text() string {
	switch v := f.value.Interface().(type) {
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = yamlString(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case string:
		return yamlString(v)
	case time.Duration:
		return shortDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// shortDuration writes 1m rather than 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// yamlString quotes s where YAML would read it as something else.
func yamlString(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
	}) < 0
	if _, err := strconv.ParseFloat(s, 64); err == nil || !plain {
		return strconv.Quote(s)
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null":
		return strconv.Quote(s)
	}
	return s
}

func (f *Field) allowed() string {
	if one := f.tag.Get("oneof"); one != "" {
		return strings.ReplaceAll(one, ",", ", ")
	}
	if lo := f.tag.Get("min"); lo != "" {
		return lo + " to " + f.tag.Get("max")
	}
	return ""
}

// checkRange returns what is wrong with the field's value, or nil.
func (f *Field) checkRange() error {
	if one := f.tag.Get("oneof"); one != "" {
		values, ok := f.value.Interface().([]string)
		if !ok {
			values = []string{f.value.String()}
		}
		for _, v := range values {
			if !contains(strings.Split(one, ","), v) {
				return fmt.Errorf("%s is %q: it must be of %s", f.Path, v, f.Allowed)
			}
		}
	}
	if f.tag.Get("min") == "" {
		return nil
	}
	n := number(f.value.Interface())
	if n < bound(f, "min") || n > bound(f, "max") {
		return fmt.Errorf("%s is %s: it must be %s", f.Path, f.text(), f.Allowed)
	}
	return nil
}

// number is a field's value for comparing.
func number(v any) float64 {
	r := reflect.ValueOf(v)
	if r.CanInt() {
		return float64(r.Int())
	}
	return float64(r.Uint())
}

// bound reads a min or max tag in the field's own unit. The tags are part of
// the program, and a test reads each, so one that can't be read is a bug.
func bound(f *Field, tag string) float64 {
	v, err := f.parse(f.tag.Get(tag))
	if err != nil {
		panic(err)
	}
	return number(v)
}

// parse reads text as a value of the field's type.
func (f *Field) parse(text string) (any, error) {
	wrong := func(want string) error { return fmt.Errorf("%s is %q: it must be %s", f.Path, text, want) }
	switch f.value.Interface().(type) {
	case string:
		return text, nil
	case []string:
		var list []string
		for _, s := range strings.Split(text, ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
		return list, nil
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, wrong("true or false")
		}
		return b, nil
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, wrong("a whole number")
		}
		return n, nil
	case uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, wrong("a whole number")
		}
		return n, nil
	case Size:
		n, err := ParseSize(text)
		if err != nil {
			return nil, wrong("a size like 512MiB or 10GB")
		}
		return n, nil
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, wrong("a duration like 500ms, 30s or 1h")
		}
		return d, nil
	}
	panic("conf: no parser for the type of " + f.Path)
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
