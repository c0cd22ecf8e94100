// The mail as it goes over the wire.

package smtp

import (
	"bytes"
	"encoding/base64"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidings-project/tidings/channel"
)

// render makes the whole message (RFC 5322, RFC 2045). It is a pure function of the message and the configured sender:
// the Message-ID and the date are those of the notification, not of the attempt. All lines are shorter than 998 bytes
// and, unless the address is not, ASCII.
func (c *Channel) render(m channel.Message) []byte {
	var b bytes.Buffer
	header := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	header("From", c.from.String())
	header("To", "<"+m.Address+">")
	if m.Title != "" {
		header("Subject", encodeWords(m.Title))
	}
	header("Date", m.CreatedAt.UTC().Format(time.RFC1123Z))
	header("Message-ID", "<"+m.Key+"@"+c.config.Domain+">")
	header("Auto-Submitted", "auto-generated") // RFC 3834: nobody's out-of-office reply is wanted
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	body := quotedprintable.NewWriter(&b)
	_, _ = body.Write([]byte(m.Body)) // a bytes.Buffer does not fail
	_ = body.Close()
	if !bytes.HasSuffix(b.Bytes(), []byte("\r\n")) {
		b.WriteString("\r\n")
	}
	return b.Bytes()
}

// encodeWords writes a header text: as it is when it is short and printable ASCII, otherwise as encoded words of at most
// 75 characters (RFC 2047, section 2), one a line. No control character gets into the header, encoded or not.
func encodeWords(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if len(s) <= 66 && ascii(s) && !strings.Contains(s, "=?") && s == strings.TrimSpace(s) {
		return s
	}
	const most = 45 // bytes: 60 in base64, 72 with the frame
	var words []string
	for s != "" {
		n := min(most, len(s))
		for n < len(s) && n > 1 && !utf8.RuneStart(s[n]) {
			n--
		}
		words = append(words, "=?utf-8?b?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, "\r\n ")
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// plainAddress accepts user@host as it stands in an envelope: no display name, no comment, no quoted local part, at
// most 254 bytes (RFC 5321, section 4.5.3.1, erratum 1690 of RFC 3696).
func plainAddress(s string) bool {
	if len(s) > 254 || strings.ContainsAny(s, " \t\r\n<>()[],;:\\\"") || !utf8.ValidString(s) ||
		strings.ContainsFunc(s, unicode.IsControl) {
		return false
	}
	a, err := mail.ParseAddress(s)
	return err == nil && a.Address == s && a.Name == ""
}
