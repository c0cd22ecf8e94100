// What dev prints when everything runs.

package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/tidings-project/tidings/cmd/tidings/internal/front"
	"github.com/tidings-project/tidings/cmd/tidings/internal/sandbox"
)

func (c *devCmd) welcome(e *env, box *sandbox.Sandbox, url, key string, people []front.Person) {
	p := func(format string, args ...any) { fmt.Fprintf(e.stdout, format+"\n", args...) }
	for _, note := range box.Notes {
		p("%s", note)
	}
	p("")
	p("open %s/          two people with a phone and a laptop each, and switches for trouble", url)
	p("open %s/console   the operator's console; sign in with the key %s", url, key)
	p("")
	p("API        %s   described by %s/v1/openapi.json", url, url)
	p("mails      %s   what arrived over SMTP at %s", box.MailsURL(), box.SMTPAddr())
	p("webhooks   %s   what arrived with a good signature", box.HooksURL())
	p("providers  %s   scripted push, sms and plain doubles", box.Doubles.URL())
	p("database   %s   kept in %s", box.DatabaseURL(), c.Dir)
	p("")
	// A key that was used is a duplicate: the time makes those of this run new.
	order := time.Now().Format("order-0102-150405")
	self := invocation()
	submit := func(event, more string) {
		p(`  curl -sS %s/v1/notifications -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \`, url, key)
		p(`    -d '{"user":"%s","event_key":"%s-%s","title":"Your order","body":"Your order: %s.","ttl_s":3600%s}'`, devUser, order, event, event, more)
	}
	p("Tell %s something, on every channel, and see what became of it:", devUser)
	p("")
	submit("shipped", "")
	p(`  curl -sS '%s/v1/notifications?user=%s&event_key=%s-shipped' -H 'Authorization: Bearer %s'`, url, devUser, order, key)
	p("")
	p("Let the next answer of the push provider come too late, and see after some seconds what the worker makes of it:")
	p("")
	p(`  curl -sS %s/script -d '{"mode":"push","steps":[{"do":"accept","delay_ms":5000}]}'`, box.Doubles.URL())
	submit("delayed", `,"channels":["push"]`)
	p(`  curl -sS '%s/v1/notifications?user=%s&event_key=%s-delayed' -H 'Authorization: Bearer %s'`, url, devUser, order, key)
	p("")
	p("Let a provider that can neither recognise a repeat nor be asked take a message and never answer. After some seconds a person has to look:")
	p("")
	p(`  curl -sS %s/script -d '{"mode":"plain","steps":[{"do":"hang"}]}'`, box.Doubles.URL())
	submit("lost", `,"channels":["plain"]`)
	p("  export TIDINGS_URL=%s TIDINGS_KEY=%s", url, key)
	p("  %s review list      # also: review show TASK, review resolve SENT TASK, notify show USER EVENT, channel list", self)
	p("")
	p("Talk: each of these in a terminal of its own. Stop and start tidings dev in between: what you type meanwhile is sent once when it is back.")
	for _, person := range people {
		p("")
		p("  export TIDINGS_URL=%s TIDINGS_TOKEN=%s", url, person.Token)
		p("  %s chat %s --outbox %s", self, devConv, c.outbox(person.User))
	}
	p("")
	p("The same by HTTP, and another user:")
	p("")
	p("  export URL=%s KEY=%s TOKEN=%s", url, key, people[0].Token)
	p(`  curl -sS -X PUT $URL/v1/conversations/%s/messages/hello-1 -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '{"body":"Hello by HTTP."}'`, devConv)
	p(`  curl -sS "$URL/v1/conversations/%s/events?after=0" -H "Authorization: Bearer $TOKEN"`, devConv)
	p(`  curl -sS -X PUT $URL/v1/conversations/%s/members/u-cara -H "Authorization: Bearer $KEY"`, devConv)
	p("  TIDINGS_TOKEN_HS256_SECRET=$(cat %s) %s token issue u-cara", filepath.Join(c.Dir, "secret"), self)
	p("")
	p("Ctrl-C stops everything.")
	p("")
}
