package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var licenceFiles = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)([.-].*)?$`)

func (r *release) licences() ([]entry, error) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}{{end}}",
		"./cmd/api", "./cmd/admin", "./cmd/sluice")
	cmd.Dir = root
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules: %w", err)
	}
	modules := strings.Fields(strings.TrimSpace(string(output)))
	folders := map[string]string{}
	for i := 0; i+1 < len(modules); i += 2 {
		folders["go/"+modules[i]] = modules[i+1]
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	folders["go/std"] = strings.TrimSpace(string(goroot))
	if err := addPackages(folders); err != nil {
		return nil, err
	}
	var all []entry
	for name, folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		found := false
		for _, file := range files {
			if !licenceFiles.MatchString(file.Name()) || file.IsDir() {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, file.Name()))
			if err != nil {
				return nil, err
			}
			all, found = append(all, entry{"licences/" + name + "/" + file.Name(), 0o644, text}), true
		}
		if !found && strings.HasPrefix(name, "go/") {
			return nil, fmt.Errorf("%s has no licence in %s; it cannot be passed on", name, folder)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

func addPackages(folders map[string]string) error {
	text, err := os.ReadFile(filepath.Join(root, "web", "package-lock.json"))
	if err != nil {
		return err
	}
	var lock struct {
		Packages map[string]struct {
			Version string `json:"version"`
			Dev     bool   `json:"dev"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return fmt.Errorf("read web/package-lock.json: %w", err)
	}
	for path, p := range lock.Packages {
		folder := filepath.Join(root, "web", path)
		if _, err := os.Stat(folder); path == "" || p.Dev || errors.Is(err, os.ErrNotExist) {
			continue
		}
		folders["npm/"+strings.TrimPrefix(path, "node_modules/")+"@"+p.Version] = folder
	}
	return nil
}
