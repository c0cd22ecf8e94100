// Command centrifuge is a server made of Centrifugo's library (github.com/centrifugal/centrifuge), which the benchmarks of conversations
// measure beside the product. It is a module of its own, so that neither the product nor the benchmarks depend on the library.
//
// A client says who it is by the name in its connect command and is subscribed by the server: user NAME-n to the channels NAME-c-k of its
// group of fifty, as many as -channels says; with -one everybody to the channel "fan".
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/centrifugal/centrifuge"
)

var (
	channels = flag.Int("channels", 3, "channels of a user")
	one      = flag.Bool("one", false, "everybody is in the one channel fan")
	lean     = flag.Bool("lean", false, "small read buffers and pooled write buffers instead of the defaults")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "centrifuge:", err)
		os.Exit(1)
	}
}

func run() error {
	node, err := centrifuge.New(centrifuge.Config{LogLevel: centrifuge.LogLevelError, LogHandler: func(e centrifuge.LogEntry) {
		fmt.Fprintln(os.Stderr, e.Message, e.Fields)
	}})
	if err != nil {
		return err
	}
	node.OnConnecting(func(_ context.Context, e centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: e.Name}, Subscriptions: subscriptions(e.Name)}, nil
	})
	if err := node.Run(); err != nil {
		return err
	}
	cfg := centrifuge.WebsocketConfig{CheckOrigin: func(*http.Request) bool { return true }}
	if *lean {
		cfg.ReadBufferSize, cfg.WriteBufferSize, cfg.UseWriteBufferPool = 512, 1024, true
	}
	http.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, cfg))
	http.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		began := time.Now()
		if _, err := node.Publish("fan", data); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, strconv.FormatInt(began.UnixNano(), 10))
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": "http://" + l.Addr().String()}); err != nil {
		return err
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the benchmark has ended
	}()
	return http.Serve(l, nil)
}

func subscriptions(user string) map[string]centrifuge.SubscribeOptions {
	if *one {
		return map[string]centrifuge.SubscribeOptions{"fan": {}}
	}
	s := map[string]centrifuge.SubscribeOptions{}
	_, digits, _ := strings.Cut(user, "-")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return s
	}
	for c := range *channels {
		s[fmt.Sprintf("c-%d-%d", n/50, c)] = centrifuge.SubscribeOptions{}
	}
	return s
}
