package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

type platformImage struct {
	v1.Image
	file string
}

func (r *release) image(t target, binaries string, licences []entry) (*platformImage, error) {
	authorities, err := os.ReadFile(r.caFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities, which -ca names: %w", err)
	}
	entries := []entry{{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities}}
	for _, l := range licences {
		entries = append(entries, entry{"usr/share/doc/sluice/" + l.name, l.mode, l.content})
	}
	for _, file := range []string{"LICENSE", "NOTICE"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{"usr/share/doc/sluice/" + file, 0o644, text})
	}
	image := empty.Image
	if image, err = withLayer(image, entries); err != nil {
		return nil, err
	}
	for _, program := range imagePrograms { // a layer each, so that an update of one passes on the other
		content, err := os.ReadFile(filepath.Join(binaries, program))
		if err != nil {
			return nil, err
		}
		if image, err = withLayer(image, []entry{{"usr/local/bin/" + program, 0o755, content}}); err != nil {
			return nil, err
		}
	}
	config := &v1.ConfigFile{
		OS: t.os, Architecture: t.arch, Created: v1.Time{Time: released},
		Config: v1.Config{
			User: "65532:65532", WorkingDir: "/", Cmd: []string{"api"}, Env: []string{"PATH=/usr/local/bin"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "9090/tcp": {}, "9091/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.title": "sluice", "org.opencontainers.image.version": r.version,
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.source":   "https://github.com/sluicegate/sluice",
			},
		},
	}
	layers, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.RootFS, config.History = layers.RootFS, layers.History
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configure the image: %w", err)
	}
	tag, err := name.NewTag("sluice:" + r.version)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.out, fmt.Sprintf("sluice-%s-image-%s.tar", r.version, t.arch))
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return nil, fmt.Errorf("write the image: %w", err)
	}
	return &platformImage{image, file}, nil
}

func withLayer(image v1.Image, entries []entry) (v1.Image, error) {
	packed, err := pack(entries)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed)),
			nil
	},
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make a layer: %w", err)
	}
	return mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: released}, CreatedBy: "deploy/release"},
	})
}

func (r *release) push(repository string, images map[target]*platformImage) error {
	tag, err := name.NewTag(repository + ":" + r.version)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	index := mutate.AppendManifests(empty.Index)
	for _, t := range r.targets {
		if image := images[t]; image != nil {
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add: image.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.os, Architecture: t.arch}},
			})
		}
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", tag, err)
	}
	_, err = fmt.Fprintln(r.report, "pushed", tag)
	return err
}
