// Keeps a process's output line by line.

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	keptLines = 10_000  // older ones are forgotten
	lineLimit = 1 << 16 // a longer line is cut into pieces
)

// lines keeps the last lines of a process's output and lets one goroutine at a time wait for one.
type lines struct {
	mu    sync.Mutex
	part  []byte   // of a line that has not ended
	kept  []string // at most keptLines
	next  int      // index in kept of the first line that await has not passed
	ended bool
	wake  chan struct{} // closed and replaced at every change
}

func newLines() *lines { return &lines{wake: make(chan struct{})} }

// Write takes output as it comes. os/exec calls it from one goroutine when both outputs go here.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		end, skip := bytes.IndexByte(l.part, '\n'), 1
		if end < 0 || end > lineLimit {
			end, skip = lineLimit, 0
		}
		if len(l.part) < end+skip {
			break
		}
		l.keep(string(l.part[:end]))
		l.part = l.part[end+skip:]
	}
	l.stir()
	return len(p), nil
}

// end marks that nothing more will come.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.keep(string(l.part))
	}
	l.ended = true
	l.stir()
}

// await returns the next line that contains text and passes it.
func (l *lines) await(text string, within time.Duration) (string, error) {
	timeout := time.After(within)
	for {
		l.mu.Lock()
		for l.next < len(l.kept) {
			line := l.kept[l.next]
			l.next++
			if strings.Contains(line, text) {
				l.mu.Unlock()
				return line, nil
			}
		}
		ended, wake := l.ended, l.wake
		l.mu.Unlock()
		if ended {
			return "", errors.New("the process ended without it")
		}
		select {
		case <-wake:
		case <-timeout:
			return "", fmt.Errorf("not within %v", within)
		}
	}
}

// tail returns the last few lines, for messages.
func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 2000
	text := strings.Join(l.kept[max(0, len(l.kept)-20):], "\n")
	return text[max(0, len(text)-most):]
}

func (l *lines) keep(line string) {
	l.kept = append(l.kept, line)
	if over := len(l.kept) - keptLines; over > 0 {
		l.kept = l.kept[over:]
		l.next = max(0, l.next-over)
	}
}

func (l *lines) stir() {
	close(l.wake)
	l.wake = make(chan struct{})
}
