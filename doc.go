// Package tidings is the vocabulary of a messaging backend that never guesses: notifications and the tasks that
// carry them out, the states and outcomes a task can have, the rules by which one follows from another, and the
// codes with which every refusal names its reason.
//
// It holds words and rules only and uses nothing but the standard library. An application writes a notification in
// its own transaction with package outbox, a worker carries tasks out with package dispatch, and a transport is
// described by package channel.
package tidings
