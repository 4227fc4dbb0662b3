package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"penstock/dataplane/brokertest"
	"penstock/migrations/pgtest"
)

// What the tests run, as processes, so that they can be killed.
var broker, example, apart string

func TestMain(m *testing.M) { goleak.VerifyTestMain(built{m}) }

type built struct{ m *testing.M }

func (b built) Run() int {
	dir, err := os.MkdirTemp("", "exactly-once")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	broker, example, apart = filepath.Join(dir, "penstock-broker"), filepath.Join(dir, "exactly-once"), filepath.Join(dir, "apart")
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Main(b.m).Run()
}

func build(dir string) error {
	if err := brokertest.Build(broker); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", example, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	// The same program with the fault that it is there to avoid: result and offset stored one after the other.
	ledger, err := filepath.Abs("ledger.go")
	if err != nil {
		return err
	}
	source, err := os.ReadFile(ledger)
	if err != nil {
		return err
	}
	const together = `
		if err := l.move(ctx, tx, next); err != nil {
			return err
		}
		return l.add(ctx, tx, grown)
	})
`
	const oneByOne = `
		return l.add(ctx, tx, grown)
	})
	if err == nil {
		err = pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error { return l.move(ctx, tx, next) })
	}
`
	if strings.Count(string(source), together) != 1 {
		return fmt.Errorf("%s has changed: where does it store result and offset together?", ledger)
	}
	faulty := filepath.Join(dir, "ledger.go")
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(source), together, oneByOne, 1)), 0o600); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{ledger: faulty}})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-overlay", file, "-o", apart, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
