// Reads bodies: what JSON is refused before it is decoded.

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidings-project/tidings"
)

// decode reads a request's JSON. It refuses what encoding/json would silently replace and PostgreSQL cannot store:
// bytes that are no UTF-8, U+0000, and halves of a surrogate pair; and objects that have a field twice. Fields that v does not have are
// ignored.
func decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("the body is not valid UTF-8")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return describe(err)
	}
	if err := checkEscapes(data); err != nil {
		return err
	}
	return checkFields(json.NewDecoder(bytes.NewReader(data)))
}

// checkFields looks for two fields of one object whose names differ in nothing but letter case. To encoding/json and to the judgement of bounds
// both are the field of that name, but which of them counts they need not agree on. It looks into all of the valid JSON of d, except
// what is called data: that is an application's own, and is handed on as it is.
func checkFields(d *json.Decoder) error {
	opening, err := d.Token()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for (opening == json.Delim('{') || opening == json.Delim('[')) && d.More() {
		if opening == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return err
			}
			folded := fold(name.(string)) // valid JSON has a string here
			if names[folded] {
				return fmt.Errorf("the body has the field %q twice", name)
			}
			names[folded] = true
			if folded == fold("data") {
				var skipped json.RawMessage
				if err := d.Decode(&skipped); err != nil {
					return err
				}
				continue
			}
		}
		if err := checkFields(d); err != nil {
			return err
		}
	}
	if opening == json.Delim('{') || opening == json.Delim('[') {
		_, err = d.Token()
	}
	return err
}

// fold maps names that strings.EqualFold holds for equal, as encoding/json does, to the same text.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, name)
}

// describe says what is wrong in the words of the request instead of those of Go.
func describe(err error) error {
	var (
		kind   *json.UnmarshalTypeError
		syntax *json.SyntaxError
		own    *tidings.Error
	)
	switch {
	case errors.As(err, &own):
		return errors.New(own.Message)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s cannot be %s", kind.Field, article(kind.Value))
	case errors.As(err, &kind):
		return fmt.Errorf("the body cannot be %s", article(kind.Value))
	case errors.As(err, &syntax):
		return fmt.Errorf("the body is not JSON at byte %d", syntax.Offset)
	}
	return errors.New("the body is not JSON of the expected shape")
}

// article puts the article before a kind of JSON value.
func article(kind string) string {
	if strings.HasPrefix(kind, "array") || strings.HasPrefix(kind, "object") {
		return "an " + kind
	}
	return "a " + kind
}

// checkEscapes looks at each \uXXXX of valid JSON. A backslash can only stand inside a string there.
func checkEscapes(data []byte) error {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if i++; data[i] != 'u' {
			continue
		}
		r := hex4(data[i+1:])
		i += 4
		switch {
		case r == 0:
			return errors.New("the body has U+0000 in a string")
		case r < 0xD800 || r > 0xDFFF:
		case r <= 0xDBFF && i+6 < len(data) && data[i+1] == '\\' && data[i+2] == 'u' && hex4(data[i+3:])&0xFC00 == 0xDC00:
			i += 6
		default:
			return errors.New("the body has half of a surrogate pair in a string")
		}
	}
	return nil
}

func hex4(b []byte) uint64 {
	r, _ := strconv.ParseUint(string(b[:4]), 16, 16) // valid JSON has four hexadecimal digits here
	return r
}
