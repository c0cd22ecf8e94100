// Prints the reference of settings.

package server

import (
	"fmt"
	"reflect"
	"strings"
)

// setting is one field of Config as its tags describe it.
type setting struct{ flag, key, env, standard, help string }

func settings() []setting {
	var out []setting
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		name := f.Tag.Get("name")
		if name == "" {
			continue
		}
		out = append(out, setting{flag: "--" + name, key: strings.ReplaceAll(name, "-", "_"), env: f.Tag.Get("env"),
			standard: f.Tag.Get("default"), help: f.Tag.Get("help")})
	}
	return out
}

// Reference is docs/configuration.md: every setting, from the tags of Config and Channel.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Printed by "tidings config". Change the tags in internal/server/config.go and channels.go instead. -->

` + "`tidings serve`" + ` reads flags, environment variables and, with ` + "`--config FILE`" + `, a YAML file; a flag wins over the
environment, the environment over the file, the file over the default. A key in the file that does not exist is refused.

| flag | environment | key | default | |
|---|---|---|---|---|
`)
	b.WriteString("| `--config` | | | | The YAML file. |\n" +
		"| `--migrate` | | | | Brings the database to this release's schema first. |\n")
	for _, s := range settings() {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s | %s |\n", s.flag, s.env, s.key, code(s.standard), s.help)
	}
	b.WriteString(`
## Channels

Channels stand in the file only, under the name that preferences use. Exactly one of ` + "`smtp`, `webhook` and `double`" + ` says what it is.

` + "```yaml" + `
channels:
  email:
    concurrency: 16
    timeout: 30s
    smtp:
      addr: smtp.example.com:587
      from: Example <no-reply@example.com>
      username: no-reply@example.com
      password: {env: SMTP_PASSWORD}
  orders:
    webhook:
      url: https://orders.example.com/hooks
      secrets: [{file: /run/secrets/orders-hook}]
      key_window: 24h
` + "```" + `

A secret is ` + "`{env: NAME}`, `{file: PATH}`" + ` (without the last line end) or, for trying out, plain text.
`)
	table(&b, "Every channel", reflect.TypeFor[Channel]())
	table(&b, "smtp", reflect.TypeFor[SMTP]())
	table(&b, "webhook", reflect.TypeFor[Webhook]())
	table(&b, "double", reflect.TypeFor[Double]())
	return b.String()
}

func table(b *strings.Builder, title string, t reflect.Type) {
	fmt.Fprintf(b, "\n### %s\n\n| key | |\n|---|---|\n", title)
	for _, f := range reflect.VisibleFields(t) {
		fmt.Fprintf(b, "| `%s` | %s |\n", f.Tag.Get("yaml"), f.Tag.Get("help"))
	}
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
