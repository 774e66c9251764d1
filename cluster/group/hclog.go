package group

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// An hcLog is an hclog.Logger on slog. The libraries say much at their levels
// info and warning that is no concern of an operator: those become debug. So do
// errors that repeat while a peer is away, which cluster/member reports once.
type hcLog struct {
	log  *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*hcLog)(nil)

func newHCLog(l *slog.Logger) *hcLog { return &hcLog{log: l} }

// repeated begins the messages of errors that are logged as debug.
var repeated = []string{
	"failed to appendEntries to", "failed to heartbeat to", "failed to pipeline appendEntries",
	"failed to make requestVote RPC", "failed to start pipeline replication", "failed to get log",
	"failed to install snapshot", "failed to send snapshot to", "failed to take snapshot",
	"failed to decode incoming command", "failed to flush response", "failed to accept connection",
	"peer has newer term", "failed to copy snapshot", "failed to restore snapshot",
}

func slogLevel(level hclog.Level, msg string) slog.Level {
	if level < hclog.Error {
		return slog.LevelDebug
	}
	for _, r := range repeated {
		if strings.HasPrefix(msg, r) {
			return slog.LevelDebug
		}
	}
	return slog.LevelError
}

// Log emits a message.
func (h *hcLog) Log(level hclog.Level, msg string, args ...any) {
	l := slogLevel(level, msg)
	if !h.log.Enabled(context.Background(), l) {
		return
	}
	all := make([]any, 0, len(h.args)+len(args))
	for _, a := range append(append(all, h.args...), args...) {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		all = append(all, a)
	}
	h.log.Log(context.Background(), l, "raft: "+msg, all...)
}

// Trace emits a message at level trace.
func (h *hcLog) Trace(msg string, args ...any) { h.Log(hclog.Trace, msg, args...) }

// Debug emits a message at level debug.
func (h *hcLog) Debug(msg string, args ...any) { h.Log(hclog.Debug, msg, args...) }

// Info emits a message at level info.
func (h *hcLog) Info(msg string, args ...any) { h.Log(hclog.Info, msg, args...) }

// Warn emits a message at level warn.
func (h *hcLog) Warn(msg string, args ...any) { h.Log(hclog.Warn, msg, args...) }

// Error emits a message at level error.
func (h *hcLog) Error(msg string, args ...any) { h.Log(hclog.Error, msg, args...) }

func (h *hcLog) debug() bool { return h.log.Enabled(context.Background(), slog.LevelDebug) }

// IsTrace reports whether level trace is emitted.
func (h *hcLog) IsTrace() bool { return h.debug() }

// IsDebug reports whether level debug is emitted.
func (h *hcLog) IsDebug() bool { return h.debug() }

// IsInfo reports whether level info is emitted.
func (h *hcLog) IsInfo() bool { return h.debug() }

// IsWarn reports whether level warn is emitted.
func (h *hcLog) IsWarn() bool { return h.debug() }

// IsError reports whether level error is emitted.
func (h *hcLog) IsError() bool { return h.log.Enabled(context.Background(), slog.LevelError) }

// ImpliedArgs returns the arguments of With.
func (h *hcLog) ImpliedArgs() []any { return h.args }

// With returns a logger with more arguments.
func (h *hcLog) With(args ...any) hclog.Logger {
	return &hcLog{log: h.log, name: h.name, args: append(h.args[:len(h.args):len(h.args)], args...)}
}

// Name returns the logger's name.
func (h *hcLog) Name() string { return h.name }

// Named returns a logger of that name.
func (h *hcLog) Named(name string) hclog.Logger { return h.ResetNamed(name) }

// ResetNamed returns a logger of that name.
func (h *hcLog) ResetNamed(name string) hclog.Logger {
	return &hcLog{log: h.log, name: name, args: h.args}
}

// SetLevel does nothing: the level is slog's.
func (h *hcLog) SetLevel(hclog.Level) {}

// GetLevel returns the least level that is emitted.
func (h *hcLog) GetLevel() hclog.Level {
	if h.debug() {
		return hclog.Debug
	}
	return hclog.Error
}

// StandardLogger returns a standard logger onto this one.
func (h *hcLog) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(h.StandardWriter(o), "", 0)
}

// StandardWriter returns a writer of messages at level debug.
func (h *hcLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return hcWriter{h} }

type hcWriter struct{ h *hcLog }

// Write emits p as a message.
func (w hcWriter) Write(p []byte) (int, error) {
	w.h.Debug(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
