package dev

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
)

func secretKey(dir string) (config.Secret, error) {
	name := filepath.Join(dir, "secret-key")
	kept, err := os.ReadFile(name)
	if err == nil {
		return config.Secret(kept), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the secret key: %w", err)
	}
	key := make([]byte, auth.SecretKeyBytes)
	_, _ = rand.Read(key) // it never fails
	text := base64.StdEncoding.EncodeToString(key)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("keep the secret key: %w", err)
	}
	return config.Secret(text), nil
}
