// Command doubles runs the scripted push, sms and plain doubles until it is told to stop.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidings-project/tidings/channel/channeltest"
)

func main() {
	var o channeltest.Options
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to listen on")
	flag.DurationVar(&o.KeyRetention, "key-retention", 0, "how long push remembers a key; 0: for ever")
	flag.DurationVar(&o.VisibleAfter, "visible-after", 0, "how long after an acceptance sms shows it to a query")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	if err := run(o, stop); err != nil {
		fmt.Fprintln(os.Stderr, "doubles:", err)
		os.Exit(1)
	}
}

func run(o channeltest.Options, stop <-chan os.Signal) error {
	server, err := channeltest.Start(o)
	if err != nil {
		return err
	}
	fmt.Println(server.URL()) // the first line of the output: whoever started it reads the port here
	<-stop
	return server.Close()
}
