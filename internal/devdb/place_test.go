package devdb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyWhatIsTheServersIsTaken(t *testing.T) {
	t.Parallel()
	owner := &runAs{name: "owner", uid: os.Getuid(), gid: os.Getgid()}
	other := &runAs{name: "other", uid: os.Getuid() + 1, gid: os.Getgid()}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(full, "precious")
	tests := map[string]struct {
		user *runAs
		dir  string
		want string // "": it is taken
	}{
		"a directory of the user's with files":   {owner, full, ""},
		"an empty directory":                     {owner, t.TempDir(), ""},
		"a directory with files of another":      {other, full, "does not belong to user other"},
		"a link to an empty directory elsewhere": {owner, link, "that sluice did not make"},
		"a link, for whoever is not root":        {nil, link, ""},
		"a file of another":                      {other, file, "not a directory"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.user.place(test.dir)
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
