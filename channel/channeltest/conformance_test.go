// The conformance suite, run on the doubles.

package channeltest_test

import (
	"crypto/tls"
	"testing"

	"github.com/tidings-project/tidings/channel"
	"github.com/tidings-project/tidings/channel/channeltest"
)

func options(c *tls.Config) channeltest.ChannelOptions {
	return channeltest.ChannelOptions{Door: channel.NewDoor(channel.DoorOptions{TLS: c})}
}

func TestConformance(t *testing.T) {
	for name, make := range map[string]func(string, *tls.Config) channel.Channel{
		"push":  func(url string, c *tls.Config) channel.Channel { return channeltest.Push(url, options(c)) },
		"sms":   func(url string, c *tls.Config) channel.Channel { return channeltest.SMS(url, options(c)) },
		"plain": func(url string, c *tls.Config) channel.Channel { return channeltest.Plain(url, options(c)) },
	} {
		t.Run(name, func(t *testing.T) {
			channeltest.Conformance(t, channeltest.Fixture{HTTP: make, Message: message("00112233445566778899aabbccddeeff"),
				Answer: `{"id":"msg-1"}`, ProviderMsgID: "msg-1"})
		})
	}
}
