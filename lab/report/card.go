// Package report joins requirement cards with evidence: which promise is shown, by which checks, how often and in which
// environment, and what stands against accepting the whole.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tidings-project/tidings/lab"
)

// Card is a requirement card: a promise, what it rests on, and the checks that show it.
type Card struct {
	ID          string      `yaml:"id"`          // P1, R3
	Promise     string      `yaml:"promise"`     // in one sentence
	Level       lab.Level   `yaml:"level"`       // the environment in which it is claimed; the evidence must reach it
	Assumptions []string    `yaml:"assumptions"` // what must be so
	Unknowns    []string    `yaml:"unknowns"`    // what the checks do not tell
	Checks      []selection `yaml:"checks"`      // ids; or a pattern with the number of checks that it selects
}

// selection is an entry of Card.Checks: "33-N1", or "33-crash-*: 3".
type selection struct {
	pattern string
	count   int // 0 without one
}

// UnmarshalYAML reads either form.
func (s *selection) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return node.Decode(&s.pattern)
	}
	var counted map[string]int
	if err := node.Decode(&counted); err != nil {
		return err
	}
	if len(counted) != 1 {
		return fmt.Errorf("line %d: a pattern with one count is expected", node.Line)
	}
	for s.pattern, s.count = range counted {
		if s.count < 1 {
			return fmt.Errorf("line %d: a count is at least 1", node.Line)
		}
	}
	return nil
}

var cardID = regexp.MustCompile(`^[PR][1-9][0-9]?$`)

// ReadCard reads a card and refuses it when it is malformed in any way: the error says how.
func ReadCard(data []byte) (Card, error) {
	var c Card
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("not a card: %s", strings.Join(strings.Fields(err.Error()), " ")) // on one line
	}
	if err := decoder.Decode(new(any)); err != io.EOF {
		return c, errors.New("more than one document")
	}
	switch {
	case !cardID.MatchString(c.ID):
		return c, fmt.Errorf("id %q is not the name of a promise", c.ID)
	case strings.TrimSpace(c.Promise) == "":
		return c, errors.New("promise is missing")
	case c.Level == "":
		return c, errors.New("level is missing")
	case !slices.Contains(lab.Levels, c.Level):
		return c, fmt.Errorf("unknown level %q", c.Level)
	case len(c.Assumptions) == 0:
		return c, errors.New("assumptions are missing")
	case len(c.Unknowns) == 0:
		return c, errors.New("unknowns are missing")
	case len(c.Checks) == 0:
		return c, errors.New("checks are missing")
	}
	_, err := c.selected()
	return c, err
}

// Shows returns the ids of the checks that a well-formed card names, patterns resolved.
func (c Card) Shows() (ids []string) {
	checks, _ := c.selected()
	for _, check := range checks {
		ids = append(ids, check.ID)
	}
	return ids
}

// selected returns the checks that the card names, or says why it cannot rest on them.
func (c Card) selected() ([]lab.Check, error) {
	var all []lab.Check
	for _, s := range c.Checks {
		found, err := s.find()
		if err != nil {
			return nil, err
		}
		for _, check := range found {
			switch {
			case check.NotRun != "":
				return nil, fmt.Errorf("check %s is not run in this release", check.ID)
			case check.Kind == lab.Control || check.Kind == lab.Observation:
				return nil, fmt.Errorf("check %s is of kind %s, which shows no promise", check.ID, check.Kind)
			case !slices.Contains(check.Promises(), c.ID):
				return nil, fmt.Errorf("check %s does not support %s", check.ID, c.ID)
			case slices.ContainsFunc(all, func(other lab.Check) bool { return other.ID == check.ID }):
				return nil, fmt.Errorf("check %s is named twice", check.ID)
			}
			all = append(all, check)
		}
	}
	return all, nil
}

// find returns the checks of the catalogue that the selection names.
func (s selection) find() (found []lab.Check, err error) {
	if wild := strings.Contains(s.pattern, "*"); wild != (s.count > 0) {
		return nil, fmt.Errorf("%q: a pattern has a count, and nothing else has", s.pattern)
	}
	for _, check := range lab.Catalogue {
		match := check.ID == s.pattern
		if s.count > 0 {
			if match, err = path.Match(s.pattern, check.ID); err != nil {
				return nil, fmt.Errorf("%q: %w", s.pattern, err)
			}
		}
		if match {
			found = append(found, check)
		}
	}
	switch {
	case s.count == 0 && len(found) == 0:
		return nil, fmt.Errorf("unknown check %q", s.pattern)
	case s.count > 0 && len(found) != s.count:
		return nil, fmt.Errorf("%q selects %d, not %d", s.pattern, len(found), s.count)
	}
	return found, nil
}

// ReadCards reads all cards (*.yaml) of a directory and returns the good ones, and the reasons against the others.
func ReadCards(dir fs.FS) (cards []Card, refused []error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, []error{fmt.Errorf("find cards: %w", err)}
	}
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			refused = append(refused, fmt.Errorf("read card: %w", err))
			continue
		}
		card, err := ReadCard(data)
		if err == nil && slices.ContainsFunc(cards, func(other Card) bool { return other.ID == card.ID }) {
			err = fmt.Errorf("there is another card for %s", card.ID)
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("malformed card %s: %w", name, err))
			continue
		}
		cards = append(cards, card)
	}
	return cards, refused
}
