// Command generate writes the list of common passwords:
//
//	cd internal/auth/commonpasswords
//	go run ./generate PwnedPasswordsTop100k.txt passwords.txt ours.txt > new.bin && mv new.bin digests.bin
//
// The current list was made from files with these SHA-256 sums:
//
//	3fd4ce60530d6ee1085350838f9c748eff618ecd9ec0e4aba9b90f778c557ff5 PwnedPasswordsTop100k.txt
//	6313cc5ef683a0461416318ee3b16f3d771a3cd10ea2aae54571d27ff95d951f passwords.txt
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/auth/commonpasswords"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(names []string) error {
	var passwords []string
	for _, name := range names {
		file, err := os.Open(name) //nolint:gosec // a developer has named the files
		if err != nil {
			return fmt.Errorf("read a list: %w", err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			password, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			if utf8.RuneCountInString(password) >= commonpasswords.MinLength && !strings.HasPrefix(password, "***") {
				passwords = append(passwords, password)
			}
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		_ = file.Close()
	}
	if _, err := os.Stdout.Write(commonpasswords.Compile(passwords)); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}
