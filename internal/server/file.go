// The configuration file.

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a configuration file.
type File struct {
	Values   map[string]any     `yaml:",inline"` // by key: a flag's name with underscores
	Channels map[string]Channel `yaml:"channels"`
}

// ReadFile reads a configuration file in YAML. A key that does not exist is refused: a setting that is misspelt and
// ignored is found at the worst time.
func ReadFile(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	f := &File{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	var known []string
	for _, s := range settings() {
		known = append(known, s.key)
	}
	for key := range f.Values {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("read the configuration %s: there is no setting %s; there are %s, channels", path, key, strings.Join(known, ", "))
		}
	}
	return f, nil
}
