package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func TestMakeTestSaysWhereItIs(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`(?m)^\t@scripts/part\.sh (\d)/(\d) '([^']+)'$`).FindAllStringSubmatch(string(makefile), -1)
	if len(parts) == 0 || !strings.Contains(string(makefile), "\n\t@scripts/part.sh end\n") {
		t.Fatal("the Makefile has no parts")
	}
	folder := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "../scripts/part.sh", args...)
		command.Env = append(os.Environ(), "PARTS="+folder)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return string(output)
	}
	for _, want := range []string{
		`make test 2/\d: .+\n`, `make test 2/\d: .+, \d+ s last time\n`,
	} {
		var said strings.Builder
		for i, part := range parts {
			if part[1] != string(rune('1'+i)) || part[2] != string(rune('0'+len(parts))) {
				t.Errorf("part %d of %d is called %s/%s", i+1, len(parts), part[1], part[2])
			}
			said.WriteString(run(part[1]+"/"+part[2], part[3]))
		}
		said.WriteString(run("end"))
		for _, want := range []string{want, `make test 1/\d: .+ took \d+ s\n`, `make test: all passed in \d+ s\n$`} {
			if !regexp.MustCompile(want).MatchString(said.String()) {
				t.Errorf("it says nothing like %q:\n%s", want, said.String())
			}
		}
	}
}
