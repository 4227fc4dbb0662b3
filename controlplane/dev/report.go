package dev

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// reporter shows the demonstration: on a terminal a live line for the step that
// runs, elsewhere one plain line when it is done.
type reporter struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	rows  [][2]string // of the table at the end
	step  string
	since time.Time
	note  string
}

func newReporter(out io.Writer, terminal bool) *reporter {
	return &reporter{out: out, terminal: terminal, began: time.Now()}
}

// do runs one step. What it returns is shown behind the step's name.
func (r *reporter) do(name string, f func() (result string, err error)) error {
	r.mu.Lock()
	r.step, r.since, r.note = name, time.Now(), ""
	r.mu.Unlock()
	stop := r.live()
	result, err := f()
	stop()
	took := time.Since(r.since)
	mark, text := "✓", name
	if result != "" {
		text += ": " + result
	}
	if err != nil {
		mark, text = "✗", name+": "+err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	fmt.Fprintf(r.out, "%s %6.1f s  %s (%.1f s)\n", mark, time.Since(r.began).Seconds(), text, took.Seconds())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// head begins a group of steps.
func (r *reporter) head(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "\n%s\n", text)
}

// progress changes what the live line says.
func (r *reporter) progress(format string, args ...any) {
	r.mu.Lock()
	r.note = fmt.Sprintf(format, args...)
	r.mu.Unlock()
}

// row adds a line to the table at the end.
func (r *reporter) row(what, format string, args ...any) {
	r.mu.Lock()
	r.rows = append(r.rows, [2]string{what, fmt.Sprintf(format, args...)})
	r.mu.Unlock()
}

// table prints the table.
func (r *reporter) table() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out)
	t := tabwriter.NewWriter(r.out, 0, 8, 3, ' ', 0)
	for _, row := range r.rows {
		fmt.Fprintf(t, "  %s\t%s\n", row[0], row[1])
	}
	t.Flush()
}

// live keeps the line of the running step moving, on a terminal.
func (r *reporter) live() (stop func()) {
	if !r.terminal {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			r.mu.Lock()
			r.clear()
			text := r.step
			if r.note != "" {
				text += ": " + r.note
			}
			if len([]rune(text)) > 100 { // one line only, or clearing leaves the rest
				text = string([]rune(text)[:99]) + "…"
			}
			fmt.Fprintf(r.out, "%s %6.1f s  %s", string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[n%10]), time.Since(r.began).Seconds(), text)
			r.mu.Unlock()
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

func (r *reporter) clear() {
	if r.terminal {
		fmt.Fprint(r.out, "\r\033[K")
	}
}

// size writes bytes for people.
func size(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.2f MB", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", n/1e3)
	default:
		return fmt.Sprintf("%.0f B", n)
	}
}

// thousands writes 1707 as 1,707.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
