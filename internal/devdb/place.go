package devdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const elsewhere = "/var/lib/sluice" // for servers whose user cannot reach the wanted directory

// place creates the directory of a server and returns its real path.
//
// The user that Postgres runs as cannot enter a checkout below /root or a private temporary directory. Then dir becomes
// a symbolic link to a directory below elsewhere. Root follows no other link.
func (u *runAs) place(dir string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // the server's user must pass
		return "", err
	}
	switch there, err := filepath.EvalSymlinks(dir); {
	case err == nil:
		return there, u.take(dir, there)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	open, err := u.letThrough(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	if open {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		return dir, u.own(dir)
	}
	if err := os.MkdirAll(elsewhere, 0o755); err != nil { //nolint:gosec // as above
		return "", err
	}
	there, err := os.MkdirTemp(elsewhere, filepath.Base(dir)+"-")
	if err != nil {
		return "", err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link to nowhere
		return "", err
	}
	if err := os.Symlink(there, dir); err != nil {
		return "", err
	}
	return there, u.own(there)
}

func (u *runAs) take(dir, there string) error {
	if u == nil {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if filepath.Dir(there) != elsewhere || !ownedBy(info, 0) {
			return fmt.Errorf("%s is a link to %s that sluice did not make; choose another directory", dir, there)
		}
		if info, err = os.Stat(there); err != nil {
			return err
		}
	}
	if ownedBy(info, u.uid) {
		return nil
	}
	entries, err := os.ReadDir(there)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and does not belong to user %s; choose another directory", there, u.name)
	}
	return u.own(there)
}

func ownedBy(info fs.FileInfo, uid int) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == uid
}

func (u *runAs) letThrough(folder string) (bool, error) {
	if u == nil {
		return true, nil
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false, err
	}
	for ; ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		if err != nil {
			return false, fmt.Errorf("look at the folder of the data: %w", err)
		}
		bit := fs.FileMode(0o001)
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case int(owner.Uid) == u.uid:
				bit = 0o100
			case int(owner.Gid) == u.gid:
				bit = 0o010
			}
		}
		if info.Mode()&bit == 0 {
			return false, nil
		}
		if folder == filepath.Dir(folder) {
			return true, nil
		}
	}
}
