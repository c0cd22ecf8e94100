// Starts, asks and stops the processes that are measured or measure.

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server or a client that is measured, or measures, from outside.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	said  tail
	addr  string // host:port of a server
	probe string // host:port
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

func start(cmd *exec.Cmd, env ...string) (*process, error) {
	p := &process{cmd: cmd}
	var err error
	if p.probe, err = freeAddr(); err != nil {
		return nil, err
	}
	cmd.Env = append(append(os.Environ(), "BENCH_PROBE="+p.probe), env...)
	cmd.Stderr = &p.said
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<20)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// stop ends a process in order.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(15*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Wait() // how it ends does not matter any more
}

// freeAddr is an address on which nobody listens now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startGateway starts the product as it is deployed, with the settings given as NAME=value.
func startGateway(p *programs, database string, settings ...string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddr()
	if err != nil {
		return nil, err
	}
	env := append([]string{"TIDINGS_DATABASE_URL=" + database, "TIDINGS_TOKEN_HS256_SECRET=" + secret, "TIDINGS_LISTEN=" + addr,
		"TIDINGS_METRICS_LISTEN=" + metrics, "TIDINGS_GATEWAY_RATE=1000000", "TIDINGS_GATEWAY_DRAIN=100ms", "TIDINGS_LOG_LEVEL=warn"}, settings...)
	g, err := start(exec.Command(p.tidings, "serve", "--roles", "gateway", "--with-stdin"), env...)
	if err != nil {
		return nil, err
	}
	g.addr = addr
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if response, err := http.Get("http://" + addr + "/readyz"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return g, nil
			}
		}
		if time.Now().After(deadline) {
			g.stop()
			return nil, fmt.Errorf("the gateway is not ready: %s", &g.said)
		}
	}
}

// startOther starts a server that says on its standard output where it listens.
func startOther(program string, args ...string) (*process, error) {
	p, err := start(exec.Command(program, args...))
	if err != nil {
		return nil, err
	}
	var said struct{ URL string }
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w: %s", program, err, &p.said)
	}
	p.addr = strings.TrimPrefix(said.URL, "http://")
	return p, nil
}

func startClient(p *programs) (*process, error) { return start(exec.Command(p.client, "load")) }

// ask gives a client a command and reads its answer.
func (p *process) ask(name string, command, answer any) error {
	line, err := json.Marshal(map[string]any{name: command})
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("command the client: %w: %s", err, &p.said)
	}
	if line, err = p.out.ReadBytes('\n'); err != nil {
		return fmt.Errorf("read the client's answer: %w: %s", err, &p.said)
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(line, &failed); err == nil && failed.Error != "" {
		return fmt.Errorf("%s: %s", name, failed.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(line, answer)
}

// get reads what the probe of a process serves.
func (p *process) get(path string) ([]byte, error) {
	response, err := http.Get("http://" + p.probe + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return text, err
}

// metric reads a value of a gateway's metrics.
func (p *process) metric(names ...string) ([]float64, error) {
	values := make([]float64, len(names))
	_, addr, _ := strings.Cut(strings.Join(p.cmd.Env, "\n"), "TIDINGS_METRICS_LISTEN=")
	addr, _, _ = strings.Cut(addr, "\n")
	response, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		_, rest, found := bytes.Cut(text, []byte("\n"+name+" "))
		if !found {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
		number, _, _ := bytes.Cut(rest, []byte{'\n'})
		if values[i], err = strconv.ParseFloat(string(number), 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}
