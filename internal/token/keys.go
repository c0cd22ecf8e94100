// Public keys, from PEM and from key sets.

package token

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// The methods, as the header of a token names them (RFC 7518, RFC 8037).
const (
	hs256 = "HS256"
	rs256 = "RS256"
	edDSA = "EdDSA"
)

// key verifies signatures of one method. That each key has its method keeps a public key from being taken for an HMAC secret.
type key struct {
	kid      string // empty: the key has no name and is tried for every token of its method
	alg      string
	material any // []byte, *rsa.PublicKey or ed25519.PublicKey
}

// candidates are the keys that may have signed a token: of its method, and with its kid where both have one. hit tells whether one of
// them has that very kid.
func candidates(keys []key, alg, kid string) (set jwt.VerificationKeySet, hit bool) {
	for _, k := range keys {
		if k.alg != alg || k.kid != "" && kid != "" && k.kid != kid {
			continue
		}
		set.Keys = append(set.Keys, k.material)
		hit = hit || kid != "" && k.kid == kid
	}
	return set, hit
}

// newKey makes a key of what encoding or crypto packages return for a public key.
func newKey(kid string, public any) (key, error) {
	switch p := public.(type) {
	case ed25519.PublicKey:
		return key{kid: kid, alg: edDSA, material: p}, nil
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < MinRSA || bits > MaxRSA {
			return key{}, fmt.Errorf("an RSA key has %d bits, %d to %d are accepted", bits, MinRSA, MaxRSA)
		}
		if p.E < 3 || p.E%2 == 0 {
			return key{}, fmt.Errorf("an RSA key has the exponent %d", p.E)
		}
		return key{kid: kid, alg: rs256, material: p}, nil
	}
	return key{}, fmt.Errorf("a key is a %T: Ed25519 and RSA are accepted", public)
}

// parsePEM reads one or more blocks of type PUBLIC KEY.
func parsePEM(text []byte) (keys []key, err error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("there is a %s where only public keys belong", block.Type)
		}
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a PEM block: %w", err)
		}
		k, err := newKey("", public)
		if err != nil {
			return nil, err
		}
		keys, text = append(keys, k), rest
	}
	if len(keys) == 0 || len(bytes.TrimSpace(text)) > 0 {
		return nil, errors.New("there is something that is no PEM block of type PUBLIC KEY")
	}
	return keys, nil
}
