package devdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const oldestPostgres = 15 // has UNIQUE NULLS NOT DISTINCT

const oldestRedis = 7

// wellKnownFolders contain server programs outside PATH: on Debian and Ubuntu, Fedora and Red Hat, and with
// Homebrew on Apple and Intel machines.
var wellKnownFolders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// PostgresPrograms returns the folder of the programs of the newest Postgres, such as psql and pg_dump.
func PostgresPrograms(ctx context.Context) (string, error) { return findPostgres(ctx, "") }

func findPostgres(ctx context.Context, data string) (string, error) {
	wanted, err := dataVersion(data)
	if err != nil {
		return "", err
	}
	best, bestVersion := "", 0
	for _, folder := range postgresFolders(ctx) {
		version := programVersion(ctx, filepath.Join(folder, "postgres"))
		if version > bestVersion && (wanted == 0 || version == wanted) {
			best, bestVersion = folder, version
		}
	}
	switch {
	case bestVersion >= oldestPostgres:
		return best, nil
	case wanted != 0:
		return "", fmt.Errorf("the data in %s was written by Postgres %d, which is %w", data, wanted, ErrNotInstalled)
	default:
		return "", fmt.Errorf("server programs of Postgres %d or later: %w", oldestPostgres, ErrNotInstalled)
	}
}

func postgresFolders(ctx context.Context) []string {
	var candidates []string
	if program, err := exec.LookPath("postgres"); err == nil {
		candidates = append(candidates, filepath.Dir(program))
	}
	if output, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(output)))
	}
	for _, pattern := range wellKnownFolders {
		matches, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		candidates = append(candidates, matches...)
	}
	var folders []string
	for _, folder := range candidates {
		_, errServer := exec.LookPath(filepath.Join(folder, "postgres"))
		_, errInit := exec.LookPath(filepath.Join(folder, "initdb"))
		if errServer == nil && errInit == nil {
			folders = append(folders, folder)
		}
	}
	return folders
}

// matches "postgres (PostgreSQL) 15.14 (Debian …)" and "Redis server v=7.0.15 sha=…"
var versionNumber = regexp.MustCompile(`(?:\) |server v=)(\d+)`)

func findRedis(ctx context.Context) (string, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	if version := programVersion(ctx, binary); version < oldestRedis {
		return "", fmt.Errorf("redis-server %d or later: %w: %s is version %d", oldestRedis, ErrNotInstalled, binary,
			version)
	}
	return binary, nil
}

func programVersion(ctx context.Context, program string) int {
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return 0
	}
	return parseVersion(string(output))
}

func parseVersion(text string) int {
	match := versionNumber.FindStringSubmatch(text)
	if match == nil {
		return 0
	}
	version, err := strconv.Atoi(match[1])
	if err != nil {
		return 0
	}
	return version
}

func dataVersion(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	return version, nil
}
