package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// What would only show as a child that dies again and again is said at once.

// checkBinaries looks for the programs that the service starts.
func checkBinaries(o Options) error {
	need := []string{"penstock-broker"}
	if !o.Bare {
		need = append(need, "penstock-control")
	}
	for _, name := range need {
		if _, err := exec.LookPath(filepath.Join(o.BinDir, name)); err != nil {
			return fmt.Errorf("%s is not beside penstock in %s: run make build", name, o.BinDir)
		}
	}
	return nil
}

// checkSettings has the broker read the settings of --set: what its values mean
// is known to the broker alone.
func (s *Service) checkSettings(ctx context.Context) error {
	if len(s.o.Set) == 0 {
		return nil
	}
	file := s.f.path("check.properties")
	if err := os.WriteFile(file, []byte("broker.id=0\nlog.dirs="+s.f.path("check")+"\nzookeeper.connect=127.0.0.1:1\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	args := []string{"--check", "--config", file}
	for _, p := range s.o.Set {
		args = append(args, "--override", p.Key+"="+p.Value)
	}
	out, err := exec.CommandContext(ctx, s.binary("penstock-broker"), args...).CombinedOutput()
	said := strings.TrimSpace(string(out))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return fmt.Errorf("--set: %s", strings.TrimPrefix(said, "penstock-broker: "))
	case err != nil:
		return fmt.Errorf("check the settings of --set: %w", err)
	case said != "":
		s.say("%s", said)
	}
	return nil
}
