// Tests of the command chat.

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/bus"
	"github.com/tidings-project/tidings/internal/gateway"
	"github.com/tidings-project/tidings/internal/localpg/pgtest"
	"github.com/tidings-project/tidings/internal/store"
	"github.com/tidings-project/tidings/internal/token"
)

const chatSecret = "a secret of the tests, of 32 bytes or more"

// chatGateway is a gateway with the conversation c-g of u-ana and u-ben.
func chatGateway(t *testing.T) (url string) {
	t.Helper()
	st := store.New(pgtest.New(t))
	if err := st.EnsureLineage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := st.CreateConversation(t.Context(), store.Conversation{Conv: "c-g", RecallWindow: time.Minute, Members: []string{"u-ana", "u-ben"}}); err != nil {
		t.Fatal(err)
	}
	verifier, err := token.New(token.Config{HS256Secret: []byte(chatSecret), Audience: "tidings"})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Config{Store: st, Verifier: verifier, ID: "gw-1", DrainFor: 50 * time.Millisecond, CloseWait: time.Second,
		Bus: bus.New(bus.Config{Conn: st.Pool().Config().ConnConfig, Sender: "gw-1"})})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
	})
	for deadline := time.Now().Add(20 * time.Second); g.Ready() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the gateway does not serve")
		}
	}
	return server.URL
}

func chat(t *testing.T, url, user, conv, in string) (stdout, stderr string, err error) {
	t.Helper()
	text, err := token.IssueHS256([]byte(chatSecret), "tidings", token.Claims{User: user, Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, notes bytes.Buffer
	c := chatCmd{URL: url, Token: text, Conv: conv, Last: 50, Wait: 20 * time.Second, in: strings.NewReader(in)}
	err = c.Run(&env{ctx: ctx, stdout: &out, stderr: &notes})
	return out.String(), notes.String(), err
}

func TestChatFromAScript(t *testing.T) {
	url := chatGateway(t)
	out, notes, err := chat(t, url, "u-ana", "c-g", "hello\nan \x1b[31mescape\n/quit\nnever\n")
	if err != nil {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
	out, notes, err = chat(t, url, "u-ben", "c-g", "hi ana\n")
	if err != nil || !strings.Contains(out, "3 u-ana: hello\n4 u-ana: an \uFFFD[31mescape\n5 u-ben: hi ana\n") || strings.Contains(out, "never") {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
	if _, notes, err := chat(t, url, "u-eve", "c-g", "let me in\n"); tidings.ErrorCode(err) != tidings.NotMember || strings.Contains(notes, "NOT_MEMBER") {
		t.Fatalf("a stranger is told %v; %s", err, notes)
	}
	out, notes, err = chat(t, url, "u-ben", "c-g", "/help\n//quit\n")
	if err != nil || !strings.Contains(out, "6 u-ben: /quit\n") || strings.Contains(out, "help") || !strings.Contains(notes, "/discard, /quit; //text sends /text") {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
}

func TestChatRecalls(t *testing.T) {
	url := chatGateway(t)
	out, notes, err := chat(t, url, "u-ana", "c-g", "/recall\none\ntwo\nthree\n/recall\n/recall\n/recall x\n/recall 1\n/recall 99\n")
	if err != nil || strings.Contains(out, "three") && !strings.Contains(out, "5 u-ana recalled this message\n") {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
	for _, want := range []string{"(not recalled: none of your messages is shown here; /recall SEQ takes any)", "(5 is recalled)", "(4 is recalled)",
		"(not recalled: x is no seq)", "(not recalled: 1: ", "(not recalled: 99: "} {
		if !strings.Contains(notes, want) {
			t.Errorf("it does not say %s:\n%s", want, notes)
		}
	}
	out, notes, err = chat(t, url, "u-ben", "c-g", "/recall 3\n")
	if err != nil || !strings.Contains(out, "3 u-ana: one\n4 u-ana recalled this message\n5 u-ana recalled this message\n") || !strings.Contains(notes, "(not recalled: 3: ") {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
	out, notes, err = chat(t, url, "u-ana", "c-g", "/recall\n") // of an earlier run
	if err != nil || !strings.Contains(notes, "(3 is recalled)") {
		t.Fatalf("%v; %s%s", err, out, notes)
	}
}

// What never left is said to be not sent, and nothing else; a file keeps it.
func TestChatSaysWhatIsNotSent(t *testing.T) {
	for _, outbox := range []string{"", filepath.Join(t.TempDir(), "outbox")} {
		var out, notes bytes.Buffer
		c := chatCmd{URL: "http://127.0.0.1:1", Token: "t", Conv: "c-g", Outbox: outbox, Wait: time.Millisecond, in: strings.NewReader("one\ntwo\n")}
		err := c.Run(&env{ctx: t.Context(), stdout: &out, stderr: &notes})
		if !strings.Contains(notes.String(), "(not sent: one)\n(not sent: two)\n") || strings.Contains(notes.String(), "unknown") {
			t.Errorf("it says:\n%s", &notes)
		}
		if kept := strings.Contains(notes.String(), "2 messages kept in "); kept != (outbox != "") || kept != (err == nil) {
			t.Errorf("with the outbox %q: %v\n%s", outbox, err, &notes)
		}
		if err != nil && (tidings.ErrorCode(err) != tidings.Unavailable || !strings.Contains(err.Error(), "--outbox")) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestChatRefusesAnotherCommandLine(t *testing.T) {
	for words, c := range map[string]chatCmd{"an API key": {URL: "http://127.0.0.1:1", Token: "tdk_x", Conv: "c"}, "http:// or https://": {URL: "localhost:8080", Token: "t", Conv: "c"}} {
		var wrong usageError
		if err := c.Run(&env{ctx: t.Context()}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
}

func TestDeviceOfAToken(t *testing.T) {
	made := func(claims string) string { return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s" }
	for text, want := range map[string]string{made(`{"sub":"u-ana","did":"phone"}`): "phone", made(`{"sub":"u-ana"}`): "u-ana-chat", "no token": "chat", "a.%%.b": "chat"} {
		if got := deviceOf(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
