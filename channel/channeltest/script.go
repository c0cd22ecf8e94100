// The words of a double's script.

package channeltest

import (
	"fmt"
	"sync"
)

// Modes of a double.
const (
	ModePush  = "push"
	ModeSMS   = "sms"
	ModePlain = "plain"
)

// Kinds of a request.
const (
	KindSend  = "send"
	KindQuery = "query"
)

// What a step can do with a request.
const (
	DoAccept   = "accept"    // record acceptance, wait DelayMS, answer 200; for a query: wait and answer
	DoHang     = "hang"      // record acceptance, never answer
	DoReset    = "reset"     // record acceptance, wait DelayMS, reset the connection
	DoCut      = "cut"       // record acceptance, answer 200 and cut the body in the middle
	DoStatus   = "status"    // record acceptance, wait DelayMS, answer Status: a provider that breaks its promise
	DoRefuse   = "refuse"    // wait DelayMS, answer Status with RetryAfterS; nothing is accepted
	DoDrop     = "drop"      // reset the connection; nothing is accepted
	DoLose     = "lose"      // never answer; nothing is accepted
	DoNotFound = "not_found" // for a query: answer that nothing was accepted, whatever is true
)

// Step is what happens to one request.
type Step struct {
	Do          string `json:"do"`
	Status      int    `json:"status,omitempty"`
	DelayMS     int    `json:"delay_ms,omitempty"`
	RetryAfterS int    `json:"retry_after_s,omitempty"`
	Times       int    `json:"times,omitempty"` // how many requests in a row; 0: 1, -1: all that follow
}

// Script is a sequence of steps for the requests that match. Of several scripts the one that was set first and has steps
// left is used; a request that matches none is accepted.
type Script struct {
	Mode    string `json:"mode,omitempty"`    // "": every mode
	Kind    string `json:"kind,omitempty"`    // "": send
	Ref     string `json:"ref,omitempty"`     // "": every reference
	Address string `json:"address,omitempty"` // "": every address; queries have none
	Steps   []Step `json:"steps"`
}

func (s *Script) check() error {
	if len(s.Steps) == 0 || len(s.Steps) > 1000 {
		return fmt.Errorf("a script has 1 to 1000 steps, this one %d", len(s.Steps))
	}
	for _, st := range s.Steps {
		switch st.Do {
		case DoAccept, DoHang, DoReset, DoCut, DoDrop, DoLose, DoNotFound:
		case DoRefuse, DoStatus:
			if st.Status < 200 || st.Status > 599 {
				return fmt.Errorf("%s needs a status from 200 to 599, not %d", st.Do, st.Status)
			}
		default:
			return fmt.Errorf("%q is no step", st.Do)
		}
		if st.DelayMS < 0 || st.Times < -1 {
			return fmt.Errorf("a step of %s has a negative delay or count", st.Do)
		}
	}
	return nil
}

func (s *Script) matches(mode, kind, ref, address string) bool {
	want := s.Kind
	if want == "" {
		want = KindSend
	}
	return kind == want && (s.Mode == "" || s.Mode == mode) && (s.Ref == "" || s.Ref == ref) &&
		(s.Address == "" || s.Address == address)
}

const maxScripts = 10_000

// scripts holds what is left to be played.
type scripts struct {
	mu   sync.Mutex
	list []*Script
}

func (s *scripts) add(sc Script) error {
	if err := sc.check(); err != nil {
		return err
	}
	sc.Steps = append([]Step(nil), sc.Steps...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) >= maxScripts {
		return fmt.Errorf("at most %d scripts wait at a time", maxScripts)
	}
	s.list = append(s.list, &sc)
	return nil
}

func (s *scripts) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

// next takes the step for a request.
func (s *scripts) next(mode, kind, ref, address string) Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, sc := range s.list {
		if !sc.matches(mode, kind, ref, address) {
			continue
		}
		step := &sc.Steps[0]
		taken := *step
		if step.Times > 1 {
			step.Times--
		} else if step.Times >= 0 {
			sc.Steps = sc.Steps[1:]
		}
		if len(sc.Steps) == 0 {
			s.list = append(s.list[:i], s.list[i+1:]...)
		}
		return taken
	}
	return Step{Do: DoAccept}
}
