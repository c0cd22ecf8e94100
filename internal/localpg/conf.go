// PostgreSQL's configuration.

package localpg

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// baseConf suits a small machine and leaves durability as PostgreSQL has it. The supervisor puts wal_compression before
// it, port and Options.Settings come after it.
const baseConf = `listen_addresses = '127.0.0.1'
unix_socket_directories = ''
password_encryption = 'scram-sha-256'
shared_buffers = '256MB'
max_connections = 200
max_wal_size = '2GB'
checkpoint_timeout = '15min'
log_destination = 'stderr'
logging_collector = off
log_min_messages = warning
log_line_prefix = '%m [%p] '
lc_messages = 'C'
timezone = 'UTC'
log_timezone = 'UTC'
`

// hba lets nobody in without the password, other users of the machine included.
const hba = `host all         all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
`

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// confLines writes settings as lines of postgresql.conf, sorted by name.
func confLines(settings map[string]string) (string, error) {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := settings[name]
		if !settingName.MatchString(name) || strings.ContainsAny(value, "\x00\r\n") {
			return "", fmt.Errorf("write PostgreSQL setting %q: the name or the value cannot be written", name)
		}
		fmt.Fprintf(&b, "%s = '%s'\n", name, escape.Replace(value))
	}
	return b.String(), nil
}

// choosePort returns a port on which nobody listens: in the first attempt one that depends on seed alone, later any.
//
// The range lies below the ports that systems give to outgoing connections (from 32768 on Linux, from 49152 elsewhere).
// In that range a stopped server would lose its port: clients that try to come back to it can get it as their own port,
// and even be connected to themselves.
func choosePort(seed string, attempt int) int {
	const low, count = 15000, 15000
	h := fnv.New32a()
	h.Write([]byte(seed))
	n := h.Sum32()
	for try := attempt; ; try++ {
		if try > 0 {
			n = rand.Uint32()
		}
		port := low + int(n%count)
		l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil && try < attempt+50 {
			continue
		}
		if err == nil {
			l.Close()
		}
		return port // when 50 ports are refused, the cause is another, and the server will say it
	}
}
