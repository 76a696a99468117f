package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// aim bounds the compressed size of an image.
const aim = 27_000_000

func native(t *testing.T) *release {
	t.Helper()
	return &release{
		version: "v1.2.3", out: t.TempDir(), targets: []target{{"linux", runtime.GOARCH}}, report: io.Discard,
		caFile: "/etc/ssl/certs/ca-certificates.crt",
	}
}

func TestARelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are run on Linux")
	}
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/sluice"
	r := native(t)
	if err := r.run(repository); err != nil {
		t.Fatal(err)
	}

	t.Run("archives have checksums, licences and what they were built from", func(t *testing.T) {
		archive := filepath.Join(r.out, "sluice-v1.2.3-linux-"+runtime.GOARCH+".tar.gz")
		files := unpack(t, archive)
		for _, want := range []string{
			"api", "admin", "sluice", "LICENSE", "NOTICE", "CHANGELOG.md",
			"systemd/sluice-api.service", "licences/go/std/LICENSE",
		} {
			if len(files[want]) == 0 {
				t.Errorf("the archive lacks %s", want)
			}
		}
		if got := files["BUILDINFO"]; !strings.Contains(got, "github.com/jackc/pgx/v5") {
			t.Errorf("BUILDINFO does not name what is linked: %.200s", got)
		}
		licensed := 0
		for file := range files {
			if strings.HasPrefix(file, "licences/go/github.com/jackc/pgx/v5@") {
				licensed++
			}
		}
		if licensed == 0 {
			t.Error("there is no licence of a module that is linked")
		}
		sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(content),
			filepath.Base(archive)); !strings.Contains(string(sums), want) {
			t.Errorf("SHA256SUMS is %s, want %s in it", sums, want)
		}
		output, err := exec.Command(filepath.Join(r.out, "bin/linux-"+runtime.GOARCH, "admin"), "--version").Output()
		if err != nil || !strings.HasPrefix(string(output), "admin v1.2.3 ") {
			t.Errorf("admin --version says %q, %v", output, err)
		}
	})

	tag, err := name.NewTag(repository + ":v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the image is small, and has neither a user nor a shell", func(t *testing.T) {
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, layer := range layers {
			size, err := layer.Size()
			if err != nil {
				t.Fatal(err)
			}
			total += size
		}
		t.Logf("the image has %.1f MB", float64(total)/1e6)
		if total > aim {
			t.Errorf("the image has %d bytes, want at most %d", total, aim)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || config.Architecture != runtime.GOARCH {
			t.Errorf("it is for %s and runs as %q", config.Architecture, config.Config.User)
		}
	})
	t.Run("the image runs read-only as any user", func(t *testing.T) { runReadOnly(t, image) })
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		files[inside] = string(text)
	}
}

func extract(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, h.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAVersionHasItsForm(t *testing.T) {
	r := native(t)
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3 -X evil"} {
		if r.version = version; r.run("") == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
}

func TestTheStepsOfPublishingNameFilesThatExist(t *testing.T) {
	folder, named := "", 0
	for word := range strings.FieldsFuncSeq(steps, func(r rune) bool { return strings.ContainsRune(" ,:\n", r) }) {
		word = strings.TrimSuffix(word, ".")
		if !strings.Contains(word, "/") && !strings.HasSuffix(word, ".md") ||
			strings.Contains(word, "%") || strings.ContainsAny(word, "*\"") {
			continue
		}
		if strings.HasPrefix(word, "clients/") {
			folder = strings.Join(strings.Split(word, "/")[:2], "/")
		}
		named++
		_, err := os.Stat(filepath.Join(root, word))
		if _, within := os.Stat(filepath.Join(root, folder, word)); err != nil && within != nil {
			t.Errorf("%s does not exist", word)
		}
	}
	if named < 10 {
		t.Errorf("only %d files are named", named)
	}
}
