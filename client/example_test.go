// The example of the package's documentation.

package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/tidings-project/tidings/client"
)

// An app that shows one conversation and says something in it.
func Example() {
	c, err := client.Open(client.Config{
		URL:    "https://chat.example.org",
		Device: "ana-laptop",
		Outbox: "ana.outbox",
		Token: func(context.Context) (client.Token, error) {
			return client.Token{Text: os.Getenv("TIDINGS_TOKEN")}, nil // an app asks its own server here
		},
		Handle: func(u client.Update) {
			switch u := u.(type) {
			case client.Arrived:
				if u.Event.Body != nil {
					fmt.Println(u.Event.Sender, "says", *u.Event.Body)
				}
			case client.Ended:
				if u.Err != nil {
					fmt.Println("not sent:", u.Body, u.Err)
				}
			case client.Connection:
				fmt.Println(u.State)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	pending, err := c.Send(client.Message{Conv: "c-garden", Body: "The roses are out."}) // it is on the disk now
	if err != nil {
		log.Fatal(err)
	}
	sent, err := pending.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored as number", sent.Seq)
}
