// Command client is the other end of the benchmarks of conversations: the load, in a process apart from the server that is measured, and
// the smallest server that a gateway is compared with. The benchmark starts it, writes one JSON command a line to its standard input and
// reads one JSON answer a line from its standard output; it ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: client echo|load")
	}
	switch os.Args[1] {
	case "echo":
		return serveEcho()
	case "load":
		return serve()
	}
	return fmt.Errorf("there is no mode %q", os.Args[1])
}

// command is one of its fields.
type command struct {
	Connect *Connect
	Send    *Send
	Fan     *Fan
	Flood   *Flood
	Idle    *Idle
	Close   bool
}

// serve carries out commands, one after the other.
func serve() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var c crowd
	for in.Scan() {
		var do command
		if err := json.Unmarshal(in.Bytes(), &do); err != nil {
			return fmt.Errorf("read a command: %w", err)
		}
		answer, err := c.do(do)
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return in.Err()
}

func (c *crowd) do(do command) (any, error) {
	switch {
	case do.Connect != nil:
		return struct{}{}, c.connect(do.Connect)
	case do.Send != nil:
		return c.send(do.Send)
	case do.Fan != nil:
		return c.fan(do.Fan)
	case do.Flood != nil:
		return c.flood(do.Flood)
	case do.Idle != nil:
		return c.idle(do.Idle)
	case do.Close:
		return struct{}{}, c.close()
	}
	return nil, errors.New("the command is none")
}
