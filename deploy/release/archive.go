package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

type entry struct {
	name    string
	mode    int64
	content []byte
}

// released is the time of all files, so that one source gives one archive.
var released = time.Unix(0, 0).UTC()

func pack(entries []entry) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, e := range entries {
		header := &tar.Header{
			Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: released,
			Typeflag: tar.TypeReg,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}

func (r *release) archive(t target, binaries string, licences []entry) (string, error) {
	name := fmt.Sprintf("sluice-%s-%s-%s", r.version, t.os, t.arch)
	var entries []entry
	add := func(to, from string, mode int64) error {
		content, err := os.ReadFile(from)
		entries = append(entries, entry{name + "/" + to, mode, content})
		return err
	}
	for _, program := range programs {
		if err := add(program, filepath.Join(binaries, program), 0o755); err != nil {
			return "", err
		}
	}
	for _, file := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
		if err := add(file, filepath.Join(root, file), 0o644); err != nil {
			return "", err
		}
	}
	if t.os == "linux" {
		units, err := filepath.Glob(filepath.Join(root, "deploy", "systemd", "*"))
		if err != nil {
			return "", err
		}
		for _, unit := range units {
			if err := add("systemd/"+filepath.Base(unit), unit, 0o644); err != nil {
				return "", err
			}
		}
	}
	info, err := exec.Command("go", "version", "-m", filepath.Join(binaries, "api"),
		filepath.Join(binaries, "admin")).Output()
	if err != nil {
		return "", fmt.Errorf("read what was built: %w", err)
	}
	entries = append(entries, entry{name + "/BUILDINFO", 0o644, bytes.ReplaceAll(info, []byte(binaries+"/"), nil)})
	for _, l := range licences {
		entries = append(entries, entry{name + "/" + l.name, l.mode, l.content})
	}
	packed, err := pack(entries)
	if err != nil {
		return "", err
	}
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(packed); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	file := filepath.Join(r.out, name+".tar.gz")
	return file, os.WriteFile(file, small.Bytes(), 0o644)
}
