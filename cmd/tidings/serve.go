// The commands serve and config.

package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/tidings-project/tidings/internal/server"
	"github.com/tidings-project/tidings/schema"
)

type serveCmd struct {
	File      configFile    `name:"config" placeholder:"FILE" help:"Configuration file in YAML; channels stand there."`
	Migrate   bool          `help:"Bring the database to this release's schema first."`
	WithStdin bool          `hidden:"" help:"Stop when the standard input ends, so that a process does not outlive the one that started it."`
	Settings  server.Config `embed:""`

	read server.File
}

func (c *serveCmd) Run(e *env) error {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if c.WithStdin {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, the other side is gone
			cancel()
		}()
	}
	c.Settings.Channels = c.read.Channels
	if c.Migrate {
		if err := schema.Migrate(ctx, c.Settings.DatabaseURL); err != nil {
			return err
		}
	}
	s, err := server.New(ctx, c.Settings, slog.New(slog.NewJSONHandler(e.stderr, &slog.HandlerOptions{Level: c.Settings.LogLevel})))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// configFile is a flag whose file gives values to the other flags.
type configFile string

// BeforeResolve reads the file, and lets it speak for the flags that neither the command line nor the environment sets.
func (configFile) BeforeResolve(ctx *kong.Context, trace *kong.Path, read *server.File) error {
	file, err := server.ReadFile(string(ctx.FlagValue(trace.Flag).(configFile)))
	if err != nil {
		return err
	}
	*read = *file
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Envs {
			if _, set := os.LookupEnv(name); set {
				return nil, nil
			}
		}
		return file.Values[strings.ReplaceAll(flag.Name, "-", "_")], nil
	}))
	return nil
}

type configCmd struct{}

func (configCmd) Run(e *env) error {
	_, err := io.WriteString(e.stdout, server.Reference())
	return err
}
