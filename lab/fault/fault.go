// Package fault holds the receipt that every injected fault leaves. A check that was meant to meet a fault and has no
// receipt for it proves nothing.
package fault

import "time"

// Receipt says that a fault really happened.
type Receipt struct {
	Kind  string    `json:"kind"`  // what was done: SIGKILL, cut, hold, refuse, HTTP 503 …
	At    time.Time `json:"at"`    // when it had taken effect
	What  string    `json:"what"`  // what it was done to, in words: "worker a", "COMMIT, after its answer"
	Proof string    `json:"proof"` // what was observed of it: "all threads stopped", "2 connections closed"; empty: nothing
}

// New returns a receipt for a fault that has just taken effect.
func New(kind, what, proof string) Receipt {
	return Receipt{Kind: kind, At: time.Now().UTC(), What: what, Proof: proof}
}
