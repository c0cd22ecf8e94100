// What the children say: whole lines, each with the name of its process.

package front

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// prefixed writes each line with a prefix, in one piece.
type prefixed struct {
	to     io.Writer
	prefix string
	rest   []byte // of a line that has not ended
}

const longestLine = 64 << 10

// Write implements io.Writer. It is called from one goroutine.
func (p *prefixed) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		p.rest, rest = append(p.rest, line...), more
		if whole || len(p.rest) > longestLine {
			if _, err := fmt.Fprintf(p.to, "%s%s\n", p.prefix, p.rest); err != nil {
				return 0, err
			}
			p.rest = p.rest[:0]
		}
	}
	return len(text), nil
}

// shared lets several write to one, a line at a time.
type shared struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(line)
}
