// Tests of dev and demo as processes: what they print, keep and leave behind.

package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidings-project/tidings/internal/localpg"
)

// The development server does what it prints, keeps its data, starts afresh when told to, and leaves no process behind.
func TestDev(t *testing.T) {
	dir := devDir(t)
	ports := []string{"--port", "0", "--smtp-port", "0", "--receiver-port", "0", "--doubles-port", "0"}
	run := func(args ...string) (p *program, export []string) {
		t.Helper()
		p = start(t, dir, append(append([]string{"dev"}, ports...), args...)...)
		text := p.says("export TIDINGS_URL=", "Ctrl-C")
		_, line, _ := strings.Cut(text, "export ")
		line, _, _ = strings.Cut(line, "\n")
		for _, field := range strings.Fields(line) {
			_, value, _ := strings.Cut(field, "=")
			export = append(export, value)
		}
		return p, []string{"--url", export[0], "--key", export[1]}
	}
	stop := func(p *program, postgres int) {
		t.Helper()
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(); code != exitDone {
			t.Errorf("it exits with %d:\n%s", code, p.text())
		}
		if left := p.marked(); len(left) > 0 {
			t.Errorf("it leaves the processes %v", left)
		}
		if err := syscall.Kill(postgres, 0); err == nil {
			t.Errorf("it leaves PostgreSQL, process %d", postgres)
		}
	}

	p, api := run()
	postgres := postmaster(t, dir)
	if len(p.marked()) == 0 {
		t.Fatal("this test does not see the processes")
	}
	want(t, exitDone, with(api, "notify", "u-ana", "order-1001-shipped", "--title", "Your order", "--body", "Order 1001 is on its way.")...)
	var shown string
	await(t, "every channel to be SENT", func() bool {
		shown = want(t, exitDone, with(api, "notify", "show", "u-ana", "order-1001-shipped")...)
		return strings.Count(shown, "SENT") == 5
	}, func() string { return shown })
	p.says("mail for ana@example.test: Your order — Order 1001 is on its way.", "webhook, signature verified:")
	stop(p, postgres)

	p, api = run()
	want(t, exitDone, with(api, "notify", "show", "u-ana", "order-1001-shipped")...)
	stop(p, postmaster(t, dir))

	p, api = run("--fresh")
	want(t, exitNo, with(api, "notify", "show", "u-ana", "order-1001-shipped")...)
	stop(p, postmaster(t, dir))
}

// Killed without a chance to clean up, the development server leaves no process behind either.
func TestDevKilled(t *testing.T) {
	dir := devDir(t)
	p := start(t, dir, "dev", "--port", "0", "--smtp-port", "0", "--receiver-port", "0", "--doubles-port", "0")
	p.says("Ctrl-C")
	postgres := postmaster(t, dir)
	if all := p.marked(); len(all) != 4 {
		t.Fatalf("there are the processes %v, not this one, an API and two gateways", all)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	await(t, "PostgreSQL to end", func() bool { return syscall.Kill(postgres, 0) != nil && len(p.marked()) == 0 },
		func() string { return strings.Join(p.marked(), " ") })
}

// A port that somebody else has is replaced, and that is said; the API keeps the other one.
func TestDevTakesAFreePort(t *testing.T) {
	taken := &http.Server{Addr: "127.0.0.1:0"}
	listener, port := listen(t)
	go func() { _ = taken.Serve(listener) }() // ends with Close
	defer taken.Close()
	dir := devDir(t)
	run := func(words ...string) (url string) {
		p := start(t, dir, "dev", "--port", port, "--smtp-port", port, "--receiver-port", "0", "--doubles-port", "0")
		text := p.says(append(words, "port "+port+" is taken: there is another one for the mail server", "Ctrl-C")...)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(); code != exitDone {
			t.Errorf("it exits with %d:\n%s", code, p.text())
		}
		_, url, _ = strings.Cut(text, "export TIDINGS_URL=")
		url, _, _ = strings.Cut(url, " ")
		return url
	}
	first := run("port " + port + " is taken: there is another one for the API")
	if second := run("the API keeps port"); first != second || !strings.HasPrefix(first, "http://127.0.0.1:") {
		t.Errorf("it was at %s, and is at %s", first, second)
	}
}

// devDir is a directory for a development server. For root the data lie elsewhere, so they are removed as the product does it.
func devDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := localpg.Remove(context.Background(), filepath.Join(dir, ".tidings")); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// postmaster is the process of the development server's PostgreSQL.
func postmaster(t testing.TB, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".tidings", "pg", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || syscall.Kill(pid, 0) != nil {
		t.Fatalf("PostgreSQL is no process: %q, %v", line, err)
	}
	return pid
}

func TestDemo(t *testing.T) {
	t.Setenv(asProgram, "1") // the scene of the killed worker starts this binary
	began := time.Now()
	out := want(t, exitDone, "demo")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it takes %v", took)
	}
	for _, line := range []string{"[SEND LEASE_EXPIRED, SEND ACCEPTED_REPLAY]", "settled by demo:eve", "18 scenes ended as they should"} {
		if !strings.Contains(out, line) {
			t.Errorf("the demo does not say %q:\n%s", line, out)
		}
	}
}

// A demo that is told to stop says so, and no scene is called wrong.
func TestDemoInterrupted(t *testing.T) {
	p := start(t, t.TempDir(), "demo")
	p.says("1. All is well")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != exitError || !strings.HasSuffix(p.text(), "tidings: interrupted\n") || strings.Contains(p.text(), "WRONG") {
		t.Errorf("it exits with %d:\n%s", code, p.text())
	}
	if left := p.marked(); len(left) > 0 {
		t.Errorf("it leaves the processes %v", left)
	}
}

// A scene that ends otherwise than it should fails the demo, which says which one.
func TestDemoNoticesAWrongEnd(t *testing.T) {
	all := scenes
	defer func() { scenes = all }()
	refused := all[len(all)-1]
	sent := refused
	sent.sends = 1
	later := refused
	later.review = true
	scenes = []scene{refused, sent, later}
	out := want(t, exitNo, "demo")
	if strings.Contains(out, "scene 1:") || !strings.Contains(out, "scene 2: on push") || !strings.Contains(out, "scene 3: on push") {
		t.Errorf("the demo says:\n%s", out)
	}
}
