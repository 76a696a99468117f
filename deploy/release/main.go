// Command release writes an archive for each platform, a container image for each Linux platform, and the checksums of
// all into a folder. It needs no container daemon.
//
//	go run . -version v1.4.0 [-out ../../dist] [-targets linux/amd64,…] [-push registry.example.com/sluice]
//
// An image has the binaries api and admin, the certificate authorities of this machine, and nothing else.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const root = "../.."

type release struct {
	version string
	out     string
	targets []target
	caFile  string
	trim    bool
	report  io.Writer
}

type target struct{ os, arch string }

func main() {
	r := release{trim: true, report: os.Stdout}
	var targets, push string
	flag.StringVar(&r.version, "version", "", "the version, such as v1.4.0")
	flag.StringVar(&r.out, "out", root+"/dist", "the folder to write to")
	flag.StringVar(&targets, "targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms")
	flag.StringVar(&r.caFile, "ca", "/etc/ssl/certs/ca-certificates.crt",
		"certificate authorities for the image, in PEM")
	flag.StringVar(&push, "push", "", "a registry's repository to push the images to")
	flag.Parse()
	for name := range strings.SplitSeq(targets, ",") {
		system, arch, _ := strings.Cut(name, "/")
		r.targets = append(r.targets, target{system, arch})
	}
	if err := r.run(push); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (r *release) run(push string) error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("-version %q is not a version such as v1.4.0 or v1.4.0-rc.1", r.version)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	licences, err := r.licences()
	if err != nil {
		return err
	}
	var written []string
	images := map[target]*platformImage{}
	for _, t := range r.targets {
		binaries, err := r.build(t)
		if err != nil {
			return err
		}
		archive, err := r.archive(t, binaries, licences)
		if err != nil {
			return err
		}
		written = append(written, archive)
		if t.os != "linux" {
			continue
		}
		image, err := r.image(t, binaries, licences)
		if err != nil {
			return err
		}
		images[t] = image
		written = append(written, image.file)
	}
	if err := r.writeSums(written); err != nil {
		return err
	}
	if push == "" {
		_, err = fmt.Fprintf(r.report, steps, r.version)
		return err
	}
	return r.push(push, images)
}

const steps = `
Nothing is published yet. To publish %[1]s:

 1. Set "published": true in deploy/names.json, and the version in clients/typescript/package.json and src/version.ts,
    clients/python/pyproject.toml and src/sluice/_version.py, client/doc.go, client/grpc/go.mod and
    deploy/chart/Chart.yaml. Date it in CHANGELOG.md. Run "npm install" in clients/typescript, then "make generate".
 2. make test verify, and commit.
 3. git tag %[1]s && git tag client/grpc/%[1]s && git push origin main %[1]s client/grpc/%[1]s
    The tags publish the Go modules.
 4. make release VERSION=%[1]s ARGS="-push sluicegate/sluice", signed in at the registry.
 5. Make a release of the tag at the forge, with the .tar.gz files and SHA256SUMS of dist.
 6. In clients/typescript: npm ci && npm publish --access public
 7. In clients/python: python3 -m build && python3 -m twine upload dist/*
 8. On another machine follow the first lines of README.md and of the clients' READMEs.
`

var (
	programs      = []string{"api", "admin", "sluice"}
	imagePrograms = []string{"api", "admin"}
)

func (r *release) build(t target) (string, error) {
	dir := filepath.Join(r.out, "bin", t.os+"-"+t.arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	args := []string{
		// The pages of grpc's traces, which Sluice does not serve, would keep all methods linked.
		"build", "-tags", "grpcnotrace", "-o", absolute + "/",
		"-ldflags", "-s -w -X github.com/sluicegate/sluice/internal/config.version=" + r.version,
	}
	if r.trim {
		args = append(args, "-trimpath", "-buildvcs=auto")
	}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build for %s/%s: %w\n%s", t.os, t.arch, err, output)
	}
	return dir, nil
}

func (r *release) writeSums(files []string) error {
	var sums bytes.Buffer
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), filepath.Base(file))
		if _, err := fmt.Fprintf(r.report, "%s  %.1f MB\n", file, float64(len(content))/1e6); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644)
}
