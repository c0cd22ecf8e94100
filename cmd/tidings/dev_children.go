// How dev starts the processes that serve, and how it copies their database.

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tidings-project/tidings/cmd/tidings/internal/front"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
	"github.com/tidings-project/tidings/internal/outside"
	"github.com/tidings-project/tidings/internal/server"
)

// outsideDir goes with the database when there is a fresh one.
func (c *devCmd) outsideDir() string { return filepath.Join(c.Dir, "pg", "outside") }

func (c *devCmd) backups() string { return filepath.Join(c.Dir, "backup") }

// reportPath is where `make lab` leaves the acceptance report.
var reportPath = filepath.Join("lab", "evidence", "report.json")

// serving writes the configuration of the processes that serve and returns what makes one of them. The secrets stand in the file: other users of the machine can read a
// command line.
func (c *devCmd) serving(box *sandbox.Sandbox, secret string) (func(args ...string) *exec.Cmd, error) {
	settings := map[string]any{
		"database_url":       box.DatabaseURL(),
		"token_hs256_secret": secret,
		"outside_dir":        c.outsideDir(),
		"origins":            []string{"*"}, // an application's page is served elsewhere on this machine
		"gateway_drain":      "2s",
		"drain":              "11s", // longer than any call of a channel may take
		"log_level":          c.LogLevel.String(),
		"channels":           box.Channels(2*time.Second, 5*time.Second),
	}
	if _, err := os.Stat(reportPath); err == nil { // somebody has run the checks here
		settings["report_file"] = reportPath
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	file := filepath.Join(c.Dir, "serve.yaml")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be readable by others
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	environ := slices.DeleteFunc(os.Environ(), isSetting)
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, append([]string{"serve", "--config", file}, args...)...)
		cmd.Env = environ
		return cmd
	}, nil
}

// isSetting tells whether a variable of the environment is a setting of the server: it would win over the file, and lead to another database.
func isSetting(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	for _, field := range reflect.VisibleFields(reflect.TypeFor[server.Config]()) {
		if field.Tag.Get("env") == name {
			return true
		}
	}
	return false
}

// copies are the commands backup, restore and recover.
func (c *devCmd) copies(box *sandbox.Sandbox) front.Copies {
	return front.Copies{
		Dir: c.backups(),
		Backup: func(ctx context.Context, file string) error {
			return ran(ctx, "backup", func(e *env) error {
				return (&backupCmd{database: database{URL: box.DatabaseURL()}, To: file}).Run(e)
			})
		},
		Restore: func(ctx context.Context, url, file string) error {
			return ran(ctx, "restore", func(e *env) error { return (&restoreCmd{database: database{URL: url}, From: file}).Run(e) })
		},
		Recover: func(ctx context.Context, lostSince time.Time) error {
			_, err := os.Stat(outside.JournalPath(c.outsideDir())) // nothing was ever taken back
			none := errors.Is(err, fs.ErrNotExist)
			return ran(ctx, "recover", func(e *env) error {
				return (&recoverCmd{database: database{URL: box.DatabaseURL()}, OutsideDir: c.outsideDir(), LostSince: instant{lostSince}, WithoutJournal: none}).Run(e)
			})
		},
	}
}
