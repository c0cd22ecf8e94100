// Secrets in the configuration.

package server

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Secret is a value that should not stand in a configuration file: {env: NAME} names an environment variable, {file: PATH}
// a file whose content it is, without the last line end. A plain text is the secret itself. It never prints.
type Secret struct {
	Text, Env, File string
}

// UnmarshalYAML reads one of the three forms.
func (s *Secret) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		s.Text = n.Value
		return nil
	}
	var form map[string]string
	if err := n.Decode(&form); err != nil {
		return err
	}
	for key, value := range form {
		switch key {
		case "env":
			s.Env = value
		case "file":
			s.File = value
		default:
			return fmt.Errorf("line %d: a secret has no %s, it is {env: NAME} or {file: PATH}", n.Line, key)
		}
	}
	return nil
}

// MarshalYAML writes what UnmarshalYAML reads.
func (s Secret) MarshalYAML() (any, error) {
	switch {
	case s.Env != "":
		return map[string]string{"env": s.Env}, nil
	case s.File != "":
		return map[string]string{"file": s.File}, nil
	}
	return s.Text, nil
}

func (s Secret) String() string { return "…" }

// GoString keeps the text out of %#v.
func (s Secret) GoString() string { return s.String() }

// read is the secret; empty when none is given.
func (s Secret) read() (string, error) {
	switch {
	case s.Env != "" && s.File != "" || s.Text != "" && s.Env+s.File != "":
		return "", errors.New("a secret comes from env, from file or stands as text, not from two of them")
	case s.Env != "":
		text, ok := os.LookupEnv(s.Env)
		if !ok {
			return "", fmt.Errorf("read a secret: the environment variable %s is not set", s.Env)
		}
		return text, nil
	case s.File != "":
		text, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("read a secret: %w", err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	return s.Text, nil
}
