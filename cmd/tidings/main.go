// Command tidings is the whole product in one binary: the server, its worker, and the tools of its operators.
//
// Exit codes: 0 done; 1 the answer is no (a request was refused, verify found a violated promise, demo ended otherwise than it
// should); 2 wrong usage; 3 it could not be carried out, or it is unknown whether it was.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/internal/store"
)

// The exit codes.
const (
	exitDone  = 0
	exitNo    = 1
	exitUsage = 2
	exitError = 3
)

const description = `Conversations and notifications that never guess.

Exit codes: 0 done; 1 the answer is no (refused, a promise is violated, the demo ended wrong); 2 wrong usage; 3 it could not be carried out, or that is unknown.`

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the API, the worker and the gateway of conversations, each or all of them (--roles)."`
	Dev     devCmd     `cmd:"" help:"Run everything on this machine to try it out: a demo page with switches for trouble, the operator's console, PostgreSQL, API, worker, two gateways, a mail server, a webhook receiver and scripted providers. Prints what to open and to type."`
	Demo    demoCmd    `cmd:"" help:"Play what happens when a provider's answer is lost, a worker is killed, people chat over a bad network, and more; prints what the tables say."`
	Config  configCmd  `cmd:"" help:"Print every setting as Markdown."`
	Migrate migrateCmd `cmd:"" help:"Bring the database to this release's schema."`
	Backup  backupCmd  `cmd:"" help:"Dump the database into a file, with a manifest of what is in it."`
	Restore restoreCmd `cmd:"" help:"Put a backup into an empty database, compare it with its manifest and verify it."`
	Recover recoverCmd `cmd:"" help:"After a restore, before anything is started: new epochs, doubts about what may have been sent, and what was taken back is taken back again."`
	Erase   eraseCmd   `cmd:"" help:"Take back what a person has written and where they are reached."`
	Purge   purgeCmd   `cmd:"" help:"Empty settled notifications, purge events whose retention is over, and forget what was kept of both long enough."`
	Verify  verifyCmd  `cmd:"" help:"Look in the tables for violated promises of conversations and notifications."`
	Key     keyCmd     `cmd:"" help:"API keys."`
	Token   tokenCmd   `cmd:"" help:"Users' tokens."`
	Chat    chatCmd    `cmd:"" help:"Talk in a conversation on the terminal."`
	Notify  notifyCmd  `cmd:"" help:"Submit a notification."`
	Review  reviewCmd  `cmd:"" help:"Tasks that wait for a person."`
	Channel channelCmd `cmd:"" help:"Channels: contracts, health, pause and resume."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// env is what a command runs in.
type env struct {
	ctx    context.Context
	stdout io.Writer
	stderr io.Writer
}

// usageError is what another command line mends: nothing was asked of anybody.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage makes err a usageError, in words without a code.
func usage(err error) error {
	var coded *tidings.Error
	if errors.As(err, &coded) {
		err = errors.New(coded.Message)
	}
	if err == nil {
		return nil
	}
	return usageError{err}
}

// errNo is an answer of no that has been printed already.
var errNo = errors.New("no")

func main() {
	// The first signal asks for an orderly end. Then the signals have their usual meaning again, so that a second one ends the
	// process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := newParser(&c, stdout, stderr, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(stderr, "tidings:", err)
		return exitError
	}
	if len(args) > 0 && args[0] == "help" { // tidings help review
		args = append(args[1:len(args):len(args)], "--help")
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help has been printed
	}
	if err != nil {
		fmt.Fprintf(stderr, "tidings: %v\nSee tidings --help.\n", err)
		return exitUsage
	}
	err = command.Run(&env{ctx: ctx, stdout: stdout, stderr: stderr})
	var wrong usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNo):
		return exitNo
	}
	fmt.Fprintln(stderr, "tidings:", reason(err))
	if errors.As(err, &wrong) || errors.Is(err, server.ErrConfig) {
		return exitUsage
	}
	switch tidings.ErrorCode(err) {
	case tidings.Unavailable, tidings.OutcomeUnknown, tidings.Internal: // any error without a code counts as Internal
		return exitError
	}
	return exitNo
}

// reason is what an error says. A refused connection is told in full: there is no client who must not know.
func reason(err error) string {
	text := err.Error()
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && !strings.Contains(text, connect.Error()) {
		text += ": " + connect.Error()
	}
	return text
}

func newParser(c *cli, stdout, stderr io.Writer, exit func(int)) (*kong.Kong, error) {
	return kong.New(c, kong.Name("tidings"), kong.Description(description), kong.Writers(stdout, stderr), kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Bind(&c.Serve.read),
		kong.Vars{"scopes": strings.Join(store.Scopes, ", ")})
}

type versionCmd struct{}

func (versionCmd) Run(e *env) error {
	fmt.Fprintln(e.stdout, server.Version())
	return nil
}
