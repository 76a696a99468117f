package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exposure bounds systemd's own judgement of a unit, in tenths: 0 is the best, 100 the worst.
const exposure = "20"

func TestUnitsAreRightAndExposeLittle(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("there are the units %v, %v", units, err)
	}
	for _, unit := range units {
		// The programs are not installed where they are tested.
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		program := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAllString(string(text), "ExecStart=/bin/true")
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		if err := os.WriteFile(copied, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no",
			copied).CombinedOutput(); err != nil || len(output) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, output)
		}
		command := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", "--no-pager",
			"--threshold="+exposure, copied)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s exposes more than %s: %v\n%s", unit, exposure, err, output)
		}
		if !strings.Contains(string(text), "SystemCallErrorNumber=EPERM") {
			t.Errorf("%s: without SystemCallErrorNumber a refused call kills the process", unit)
		}
	}
}
