// Tests with Postfix's test server, which fails exactly at the final dot.

package smtp_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/channel/smtp"
)

// Postfix's test server fails exactly at the final dot.
func TestSMTPSink(t *testing.T) {
	sink, err := exec.LookPath("smtp-sink")
	if err != nil {
		t.Skip("smtp-sink (of Postfix) is not installed: the scripted peer alone covers the final dot")
	}
	for _, c := range []struct {
		name string
		args []string
		want tidings.Outcome
	}{
		{"works", nil, tidings.Accepted},
		{"disconnects after the dot", []string{"-q", "."}, tidings.IOError},
		{"450 to the dot", []string{"-r", "."}, tidings.HTTP5xx},
		{"500 to the dot", []string{"-f", "."}, tidings.Rejected},
		{"421 to the dot", []string{"-Q", "."}, tidings.HTTP5xx},
		{"slow reply to the dot", []string{"-W", ".:30"}, tidings.Timeout},
		{"450 to RCPT", []string{"-r", "RCPT"}, tidings.HTTP5xx},
		{"disconnects after DATA", []string{"-q", "DATA"}, tidings.NotSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := listener.Addr().String()
			_ = listener.Close()
			if os.Getuid() == 0 {
				c.args = append(c.args, "-u", "nobody")
			}
			ctx, cancel := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, sink, append(c.args, addr, "10")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				cancel()
				_ = cmd.Wait()
			}()
			up := deadline(t, 10*time.Second)
			for up.Err() == nil {
				if conn, err := net.Dial("tcp", addr); err == nil {
					_ = conn.Close()
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			ch := newChannel(t, smtp.Config{Addr: addr, Mode: smtp.NoTLS})
			limit := 20 * time.Second
			if c.want == tidings.Timeout {
				limit = time.Second
			}
			expect(t, ch.Send(deadline(t, limit), message()), c.want)
		})
	}
}
