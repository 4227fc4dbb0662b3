package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"penstock/controlplane/provision"
	"penstock/internal/process"
)

// What one can do to a running service from another process. All of it works on
// the state folder alone, with control plane and PostgreSQL dead.

// Stop ends the service on the folder and waits for it. If the service was
// killed, it ends what may be left of it. Nothing running is success.
func Stop(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	f := folder(dir)
	if id, err := process.ReadFile(f.path(pidFile)); err == nil {
		// Brokers may take their time; beyond that nothing is worth waiting for.
		if err := id.Terminate(ctx, 90*time.Second); err != nil {
			return fmt.Errorf("stop the service: %w", err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := haltAll(ctx, f.brokerFolders(), 20*time.Second); err != nil {
		return err
	}
	for _, name := range []string{devFile, pidFile} { // a killed service leaves them
		if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Reset stops the service and removes the state folder and PostgreSQL's data.
// A folder that is not a service's is refused.
func Reset(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	f := folder(dir)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	st, err := f.load()
	if errors.Is(err, errNoState) {
		return fmt.Errorf("%s: %w; not removed", dir, err)
	}
	if err != nil {
		return err
	}
	if err := Stop(ctx, dir); err != nil {
		return err
	}
	lock, ok, err := process.TryLock(f.path(lockFile))
	if err != nil {
		return err
	}
	if !ok {
		return ErrRunning
	}
	defer lock.Close()
	if st.Postgres.Dir != "" {
		if err := os.RemoveAll(st.Postgres.Dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// Broker does kill, stop or start to one broker of the running service.
func Broker(ctx context.Context, dir, verb string, id int32) error {
	in, err := ReadInfo(dir)
	if err != nil {
		return err
	}
	if in.Cluster == nil {
		return errors.New("the service has no cluster")
	}
	for _, b := range in.Cluster.Brokers {
		if b.ID != id {
			continue
		}
		switch verb {
		case "kill":
			return provision.KillBroker(ctx, b.Dir)
		case "stop":
			return provision.HoldStopped(ctx, b.Dir)
		case "start":
			if err := provision.LetRun(ctx, b.Dir); err != nil {
				return err
			}
			return until(ctx, "broker "+strconv.Itoa(int(id)), func(context.Context) error {
				st, err := provision.Look(b.Dir)
				if err != nil {
					return err
				}
				return brokerAnswers(st.ClientAddr)
			})
		default:
			return fmt.Errorf("unknown verb %q: want kill, stop or start", verb)
		}
	}
	return fmt.Errorf("the service has no broker %d", id)
}

// PartStatus is one line of the status.
type PartStatus struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"` // 0: it does not run
	Addr    string `json:"addr"`
	Healthy bool   `json:"healthy"`
	// Detail is why it is not healthy, or what it is up to.
	Detail string `json:"detail,omitempty"`
}

// Status is what runs.
type Status struct {
	Running bool         `json:"running"` // the service itself
	Ready   bool         `json:"ready"`   // dev.json is there
	Healthy bool         `json:"healthy"` // every part is
	Parts   []PartStatus `json:"parts"`
}

// Look tells what of the service on the folder runs.
func Look(ctx context.Context, dir string) (Status, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Status{}, err
	}
	f := folder(dir)
	var s Status
	if id, err := process.ReadFile(f.path(pidFile)); err == nil && id.Alive() {
		s.Running = true
		s.Parts = append(s.Parts, PartStatus{Name: "dev", PID: id.PID, Healthy: true})
	}
	in, err := ReadInfo(dir)
	if errors.Is(err, ErrNotRunning) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Ready = s.Running
	add := func(name string, pid int, addr string, check func() error) {
		p := PartStatus{Name: name, PID: pid, Addr: addr}
		if err := check(); err != nil {
			p.Detail = err.Error()
		} else {
			p.Healthy = true
		}
		s.Parts = append(s.Parts, p)
	}
	if in.API != "" {
		add("control plane", in.PIDs.Control, in.API, func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return apiReady(ctx, in.API)
		})
		addr := ""
		if u, err := url.Parse(in.Postgres); err == nil {
			addr = u.Host
		}
		add("PostgreSQL", in.PIDs.Postgres, addr, func() error {
			if !provision.Answers(addr) {
				return errors.New("no answer")
			}
			return nil
		})
	}
	add("ZooKeeper", in.PIDs.ZooKeeper, in.ZooKeeper, func() error { return zooKeeperOK(in.ZooKeeper) })
	if in.Cluster != nil {
		for _, b := range in.Cluster.Brokers {
			st, err := provision.Look(b.Dir)
			if err != nil {
				return s, err
			}
			add("broker "+strconv.Itoa(int(b.ID)), st.Broker.PID, st.ClientAddr, func() error {
				switch st.State {
				case provision.Running:
				case provision.Down: // a full disk, say: the broker's own words tell
					return fmt.Errorf("%s, see %s", st.State, filepath.Join(b.Dir, "broker.log"))
				default:
					return errors.New(string(st.State))
				}
				return brokerAnswers(st.ClientAddr)
			})
		}
	}
	s.Healthy = s.Running
	for _, p := range s.Parts {
		s.Healthy = s.Healthy && p.Healthy
	}
	return s, nil
}

// Print writes the status as a table.
func (s Status) Print(w io.Writer) {
	switch {
	case !s.Running && len(s.Parts) == 0:
		fmt.Fprintln(w, "no dev service is running here")
		return
	case !s.Running:
		fmt.Fprintln(w, "the dev service has died")
	case !s.Ready:
		fmt.Fprintln(w, "the dev service is starting")
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tPID\tADDRESS\tHEALTH")
	for _, p := range s.Parts {
		pid, health := "-", "ok"
		if p.PID != 0 {
			pid = strconv.Itoa(p.PID)
		}
		if !p.Healthy {
			health = p.Detail
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, pid, p.Addr, health)
	}
	t.Flush()
}
