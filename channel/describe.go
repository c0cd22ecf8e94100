// Words for errors that name no address and no content.

package channel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Describe says what went wrong in words that hold no address, no name and no content, so that they can stand in the
// journal: the texts of the net packages name hosts, and a host can be somebody's address.
func Describe(err error) string {
	what := reason(err)
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + what
	}
	return what
}

func reason(err error) string {
	var (
		refused *RefusedAddressError
		dns     *net.DNSError
		errno   syscall.Errno
		cert    *tls.CertificateVerificationError
		notTLS  tls.RecordHeaderError
		alert   tls.AlertError
		known   = knownWords(err)
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errTooLate), errors.Is(err, errSecondRequest), errors.Is(err, errSealed),
		errors.Is(err, errGivenUp), errors.Is(err, errBadRequest), errors.Is(err, errAnswerTooLong):
		return err.Error()
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case isTimeout(err):
		return "no answer in time"
	case errors.As(err, &dns):
		return "the name was not resolved"
	case errors.As(err, &cert):
		return "the certificate was not accepted"
	case errors.As(err, &notTLS):
		return "the peer does not speak TLS"
	case errors.As(err, &alert):
		return fmt.Sprintf("TLS alert %d", uint8(alert))
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	case known != "":
		return known
	default:
		return fmt.Sprintf("transport error (%T)", err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &ne) && ne.Timeout()
}

// knownWords finds what net/http says only in the text of its errors: the HTTP/2 error codes (RFC 9113, section 7) and
// the phrases that it uses for a broken connection.
func knownWords(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for _, code := range []string{"PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
		"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
		"ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED", "NO_ERROR", "GOAWAY"} {
		if strings.Contains(text, code) {
			return "HTTP/2 " + code
		}
	}
	for _, phrase := range []string{"malformed HTTP", "server closed idle connection", "client connection lost",
		"client connection force closed", "client conn not usable", "client conn could not be established"} {
		if strings.Contains(text, phrase) {
			return phrase
		}
	}
	return ""
}
