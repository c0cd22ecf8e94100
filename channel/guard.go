// Which addresses a channel may dial, judged at dial time.

package channel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// RefusedAddressError says that a guard did not allow a connection. It names no address: the address can be somebody's.
type RefusedAddressError struct{ Why string }

func (e *RefusedAddressError) Error() string { return "the target's address is not allowed: " + e.Why }

// PublicOnly is a guard that allows only addresses of the public Internet and those within the allowed prefixes. It
// judges the resolved address at the moment of dialling, so that a name cannot mean one address when it is checked and
// another when it is used.
func PublicOnly(allowed ...netip.Prefix) func(netip.Addr) error {
	return func(addr netip.Addr) error {
		addr = addr.WithZone("").Unmap()
		for _, p := range allowed {
			if p.Contains(addr) {
				return nil
			}
		}
		if why := notPublic(addr); why != "" {
			return &RefusedAddressError{Why: why}
		}
		return nil
	}
}

// special are the blocks of the IANA special-purpose address registries (RFC 6890 and its updates) that the methods of
// netip.Addr do not know. Blocks that carry an IPv4 address inside are refused whole: what they reach is not ours to see.
var special = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},                      // RFC 791
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers"},            // RFC 6598
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments"},           // RFC 6890
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},                  // RFC 5737
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},                   // RFC 7526
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},                  // RFC 2544
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},               // RFC 5737
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},                // RFC 5737
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},                        // RFC 1112, and 255.255.255.255
	{netip.MustParsePrefix("::/96"), "IPv4-compatible"},                       // RFC 4291
	{netip.MustParsePrefix("64:ff9b::/96"), "translated to IPv4"},             // RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), "translated to IPv4"},           // RFC 8215
	{netip.MustParsePrefix("100::/64"), "discard only"},                       // RFC 6666
	{netip.MustParsePrefix("2001::/23"), "protocol assignments, with Teredo"}, // RFC 2928, RFC 4380
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},                 // RFC 3849
	{netip.MustParsePrefix("2002::/16"), "6to4"},                              // RFC 3056
	{netip.MustParsePrefix("3fff::/20"), "documentation"},                     // RFC 9637
	{netip.MustParsePrefix("5f00::/16"), "segment routing"},                   // RFC 9602
	{netip.MustParsePrefix("fec0::/10"), "site-local"},                        // RFC 3879
}

func notPublic(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an address"
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.why
		}
	}
	return ""
}

// guardControl makes a guard a hook of net.Dialer, which calls it with each resolved address before it connects.
func guardControl(guard func(netip.Addr) error) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("judge the target's address: %w", err)
		}
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return &RefusedAddressError{Why: "not an address"}
		}
		return guard(addr)
	}
}
