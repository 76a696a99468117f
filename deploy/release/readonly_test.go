package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sluicegate/sluice/internal/devdb"
)

// container runs programs of an image almost like a container runtime: as an unknown user, who can write none of
// the image's files and sees no others. Without root the programs run as the tests' user, beside the machine's
// files, in a folder that is not writable.
type container struct {
	root string
	user int
}

func newContainer(t *testing.T, image v1.Image) container {
	t.Helper()
	c := container{root: t.TempDir(), user: os.Geteuid()}
	if c.user == 0 {
		c.user = 20_000 + rand.IntN(40_000)
	}
	files := mutate.Extract(image)
	defer files.Close()
	extract(t, files, c.root)
	letPass(t, c.root)
	c.chmod(t, func(mode fs.FileMode) fs.FileMode { return mode &^ 0o222 })
	t.Cleanup(func() { c.chmod(t, func(mode fs.FileMode) fs.FileMode { return mode | 0o200 }) })
	return c
}

func (c container) chmod(t *testing.T, change func(fs.FileMode) fs.FileMode) {
	t.Helper()
	err := filepath.WalkDir(c.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() == fs.ModeSymlink {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, change(info.Mode()))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c container) command(t *testing.T, env []string, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	path := "/usr/local/bin/" + program
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.root, path), arguments...)
	cmd.Dir, cmd.Env = c.root, append([]string{"HOME=" + c.root, "TMPDIR=" + c.root}, env...)
	if os.Geteuid() == 0 {
		cmd.Path, cmd.Dir, cmd.Env = path, "/", env
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Chroot:     c.root,
			Credential: &syscall.Credential{Uid: uint32(c.user), Gid: uint32(c.user)},
		}
	}
	return cmd
}

func (c container) admin(t *testing.T, env []string, input string, arguments ...string) string {
	t.Helper()
	cmd := c.command(t, env, "admin", arguments...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("admin %s: %v\n%s", arguments[0], err, stderr.String())
	}
	return strings.TrimSpace(string(output))
}

func (c container) serve(t *testing.T, env []string, addr, program string, arguments ...string) {
	t.Helper()
	var logged bytes.Buffer
	cmd := c.command(t, env, program, arguments...)
	cmd.Stderr = &logged
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var exit error
	go func() { exit = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	for deadline := time.Now().Add(time.Minute); ; {
		response, err := http.Get("http://" + addr + "/healthz")
		if err == nil {
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if strings.TrimSpace(string(text)) != `{"status":"ok","version":"v1.2.3"}` {
				t.Errorf("healthz of %s answers %s", program, text)
			}
			break
		}
		select {
		case <-ended:
			t.Fatalf("%s ended with %v:\n%s", program, exit, logged.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer", program)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil || !regexp.MustCompile(fmt.Sprintf(`Uid:\s+%d\s+%[1]d\s`, c.user)).Match(status) {
		t.Errorf("%s runs as another user, %v:\n%s", program, err, status)
	}
}

func runReadOnly(t *testing.T, image v1.Image) {
	c := newContainer(t, image)
	folder, err := os.MkdirTemp("", "sluice-test-postgres-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	postgres, err := devdb.StartPostgres(t.Context(), folder, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(postgres.Kill)
	database, err := postgres.CreateDatabase(t.Context(), "sluice")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"SLUICE_DATABASE_URL=" + database}
	c.admin(t, env, "", "migrate")
	c.admin(t, env, "", "create-tenant", "--slug", "acme", "--name", "Acme")
	c.admin(t, env, "rules: [{key_pattern: \"user:{user_id}\", rate: 1/day, burst_capacity: 1}]\n", "apply", "--tenant",
		"acme", "-f", "-")
	key := c.admin(t, env, "", "create-key", "--tenant", "acme", "--name", "test")

	checks, people := freeAddr(t), freeAddr(t)
	c.serve(t, env, people, "admin", "serve", "--admin-addr", people, "--metrics-addr", "127.0.0.1:0")
	c.serve(t, env, checks, "api", "--check-addr", checks, "--metrics-addr", "127.0.0.1:0")
	for deadline := time.Now().Add(time.Minute); ; { // until it has read the key
		status := check(t, checks, key, "somebody")
		if status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a first check is answered %d", status)
		}
		<-time.After(20 * time.Millisecond)
	}
	if status := check(t, checks, key, "somebody"); status != http.StatusTooManyRequests {
		t.Errorf("a second check is answered %d, want 429", status)
	}
}

func check(t *testing.T, addr, key, user string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/check",
		strings.NewReader(`{"user_id":"`+user+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// letPass lets everybody reach a folder, because the tests' folders are for the tests' own user alone.
func letPass(t *testing.T, folder string) {
	t.Helper()
	for parent := folder; parent != "/" && parent != os.TempDir(); parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
