// What dev puts into an empty database, and the secrets that it keeps.

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/cmd/tidings/internal/front"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

// devKey is a key with every scope. It stays the same from one run to the next, so that what was pasted once still works.
func devKey(ctx context.Context, s *store.Store, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err == nil {
		if _, err = s.FindKey(ctx, string(text)); err == nil {
			return string(text), nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) && tidings.ErrorCode(err) != tidings.Unauthenticated {
		return "", fmt.Errorf("read the key: %w", err)
	}
	secret, _, err := s.CreateKey(ctx, "dev", store.Scopes)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return "", fmt.Errorf("keep the key: %w", err)
	}
	return secret, nil
}

// devSecret signs the tokens of users. It stays the same from one run to the next, like the key.
func devSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text() + rand.Text())
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("keep the secret of the tokens: %w", err)
	}
	return string(text), nil
}

// devPeople are the users of the demo.
func devPeople() []front.Person {
	return []front.Person{
		{User: devUser, Name: "Ana", Gateway: "a", Devices: []front.Device{{ID: "ana-phone", Kind: "phone"}, {ID: "ana-laptop", Kind: "laptop"}},
			Reached: map[string]string{"email": "ana@example.test", "webhook": "ana", "push": "ana-phone", "sms": "+15550100", "plain": "ana-pager"}},
		{User: devPeer, Name: "Ben", Gateway: "b", Devices: []front.Device{{ID: "ben-phone", Kind: "phone"}, {ID: "ben-laptop", Kind: "laptop"}},
			Reached: map[string]string{"email": "ben@example.test", "webhook": "ben", "push": "ben-phone", "sms": "+15550101", "plain": "ben-pager"}},
	}
}

// seed makes the users reachable on every channel that can show something, unless they have preferences already, and makes the conversation and the key. It returns
// the users with tokens.
func (c *devCmd) seed(ctx context.Context, box *sandbox.Sandbox, secret string) (people []front.Person, key string, err error) {
	s, err := server.OpenStore(box.DatabaseURL(), 2)
	if err != nil {
		return nil, "", err
	}
	defer s.Pool().Close()
	if key, err = devKey(ctx, s, filepath.Join(c.Dir, "key")); err != nil {
		return nil, "", err
	}
	people = devPeople()
	soon := devNotifyAfter
	if _, err := s.CreateConversation(ctx, store.Conversation{Conv: devConv, RecallWindow: tidings.DefaultRecallWindow, NotifyAfter: &soon, Members: []string{devUser, devPeer},
		AnyWindow: true, AnyRetention: true, AnyNotifyAfter: true, AnyPreview: true}); err != nil {
		return nil, "", err
	}
	for i := range people {
		p := &people[i]
		if err := reachable(ctx, s, p); err != nil {
			return nil, "", err
		}
		now := time.Now()
		if p.Token, err = token.IssueHS256([]byte(secret), devAudience, token.Claims{User: p.User, Issued: now, Expires: now.Add(devTokens)}); err != nil {
			return nil, "", err
		}
	}
	return people, key, nil
}

func reachable(ctx context.Context, s *store.Store, p *front.Person) error {
	prefs, err := s.GetPrefs(ctx, p.User)
	if err != nil || len(prefs) > 0 {
		return err
	}
	for channel, address := range p.Reached {
		if _, err := s.PutPref(ctx, p.User, store.Pref{Channel: channel, Address: address, Enabled: true}, nil); err != nil {
			return err
		}
	}
	return nil
}
