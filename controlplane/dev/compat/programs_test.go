package compat

import (
	"fmt"
	"os"
	"path/filepath"
)

// python runs a program of the folder python. PYTHON is a Python that has what requirements.txt pins.
func python(file, scenario string) func(*rig) error {
	return func(r *rig) error {
		interpreter := os.Getenv("PYTHON")
		if interpreter == "" {
			interpreter = "/usr/bin/python3"
		}
		return r.program("python", interpreter, "-B", file, scenario)
	}
}

// node runs the program of the folder node, with what package-lock.json pins.
func node(scenario string) func(*rig) error {
	return func(r *rig) error {
		dir := filepath.Join(shared.dir, "node")
		err := r.once("node", func() error {
			if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
				return err
			}
			return r.command(dir, nil, "npm", "ci", "--silent", "--no-audit", "--no-fund")
		})
		if err != nil {
			return fmt.Errorf("npm ci: %w", err)
		}
		return r.program(dir, "/usr/bin/env", "node", "kafkajs.js", scenario)
	}
}

// sarama builds and runs the program of the folder sarama, which is a module of its own.
func sarama(scenario string) func(*rig) error {
	return func(r *rig) error {
		binary := filepath.Join(shared.dir, "sarama")
		if err := r.once("sarama", func() error { return r.command("sarama", nil, "go", "build", "-o", binary, ".") }); err != nil {
			return err
		}
		return r.program("", binary, scenario)
	}
}

// java compiles the Maven project of the folder java and runs one of its programs.
func java(scenario string) func(*rig) error {
	return func(r *rig) error {
		dir := filepath.Join(shared.dir, "java")
		err := r.once("java", func() error {
			return r.command("java", nil, "mvn", "-q", "-B", "-Dout="+dir, "compile", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "lib"))
		})
		if err != nil {
			return err
		}
		classPath := filepath.Join(dir, "classes") + ":" + filepath.Join(dir, "lib", "*")
		return r.program("", "/usr/bin/env", "java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classPath,
			"penstock.compat.Main", scenario, r.bootstrap, r.name)
	}
}
