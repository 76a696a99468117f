package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func parts(t *testing.T, folder, makefile string, lanes ...string) (output string, err error) {
	t.Helper()
	path := filepath.Join(folder, "Makefile")
	if err := os.WriteFile(path, []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "../scripts/parts.sh", lanes...)
	command.Env = append(os.Environ(), "PARTS="+folder, "MAKE=make -f "+path)
	text, err := command.CombinedOutput()
	return string(text), err
}

func TestMakeTestRunsAllPartsAndSaysWhereItIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	called := regexp.MustCompile(`(?m)^\t@MAKE=.* scripts/parts\.sh ((?:.*\\\n)*.+)$`).FindSubmatch(text)
	if called == nil {
		t.Fatal("the Makefile does not run parts.sh")
	}
	var lanes, defined []string
	list := strings.ReplaceAll(string(called[1]), "\\\n", "")
	for _, lane := range regexp.MustCompile(`'[^']+'|\S+`).FindAllString(list, -1) {
		lanes = append(lanes, strings.Trim(lane, "'"))
	}
	for _, target := range regexp.MustCompile(`(?m)^(test/\w+):`).FindAllSubmatch(text, -1) {
		defined = append(defined, string(target[1]))
	}
	run := strings.Fields(strings.Join(lanes, " "))
	run = slices.DeleteFunc(run, func(target string) bool { return target == "--" })
	if slices.Sort(run); !slices.Equal(run, slices.Sorted(slices.Values(defined))) {
		t.Errorf("make test runs %q, and the Makefile has %q", run, defined)
	}

	folder := t.TempDir()
	for _, last := range []string{"", `, \d+ s last time`} {
		said, err := parts(t, folder, "%:\n\t@echo output of $@\n", lanes...)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, want := range []string{`^make test: begins` + last + `\n`, `\nmake test: all passed in \d+ s\n$`} {
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("it says nothing like %q:\n%s", want, said)
			}
		}
		for _, target := range run {
			want := `(?s)make ` + target + `: begins` + last + `\n.*output of ` + target + `\n.*make ` + target +
				`: took \d+ s\n`
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("it says nothing like %q:\n%s", want, said)
			}
		}
	}
}

// The part that fails waits for one that hangs, so lanes run side by side.
func TestTheFirstPartThatFailsEndsAll(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	pid := filepath.Join(folder, "pid")
	said, err := parts(t, folder, "test/first:\ntest/hangs:\n\t@echo $$$$ > "+pid+"; exec sleep 600\n"+
		"test/fails:\n\t@until [ -s "+pid+" ]; do sleep 0.01; done; echo why; exit 3\ntest/later:\n",
		"test/first", "--", "test/hangs", "test/fails test/later")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ends with %v, want 1", err)
	}
	if !strings.Contains(said, "\nwhy\n") || !strings.Contains(said, "make test/fails: failed after ") ||
		strings.Contains(said, "test/later") || strings.Contains(said, "all passed") {
		t.Errorf("it says:\n%s", said)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(number, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the part of the other lane goes on")
		}
	}
}
