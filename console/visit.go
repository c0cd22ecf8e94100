// One request of somebody who signed in: the calls to the API that it makes, and its answer.

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// operatorHeader names a person to the API, for its journals.
const operatorHeader = "Tidings-Operator"

// refusal is an answer of the API that is no success: a problem document.
type refusal struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (r *refusal) Error() string { return r.Code + ": " + r.Detail }

// invalid is the refusal of a form or an address that says what cannot be.
func invalid(detail string) *refusal {
	return &refusal{Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT", Detail: detail}
}

// refusalOf is err as a page shows it.
func refusalOf(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{Status: http.StatusInternalServerError, Code: "INTERNAL", Detail: "A defect of the console; its log says more."}
}

// visit is one request of somebody who signed in.
type visit struct {
	session
	c   *console
	w   http.ResponseWriter
	r   *http.Request
	key keyInfo
}

// visit asks the API whether the session's key is still good. The error is a refusal, or a defect.
func (c *console) visit(w http.ResponseWriter, r *http.Request, s session) (*visit, error) {
	v := &visit{session: s, c: c, w: w, r: r}
	return v, v.get("/v1/operator/key", nil, &v.key)
}

// visited makes a handler that only who is signed in, with a key that has the scope, reaches.
func (c *console) visited(scope string, handle func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, ok := readSession(r)
		if !ok || fromElsewhere(r) {
			toSignIn(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		v, err := c.visit(w, r, s)
		if err == nil && scope != "" && !v.key.has(scope) {
			v.show(http.StatusForbidden, "scope", "Not with this key", "", scope)
			return
		}
		if err == nil {
			if err = r.ParseForm(); err != nil {
				err = invalid("The form could not be read.")
			}
		}
		if err == nil {
			err = handle(v)
		}
		if err == nil {
			return
		}
		problem := refusalOf(err)
		if problem.Code == "UNAUTHENTICATED" { // revoked meanwhile
			dropCookie(w, r, sessionCookie)
			toSignIn(w, r)
			return
		}
		if problem.Code == "INTERNAL" {
			c.log.ErrorContext(ctx, "a page of the console failed", "page", r.Pattern, "error", err)
		}
		v.show(problem.Status, "problem", "That did not work", "", problem)
	}
}

// get reads from the API. Empty parameters are left out.
func (v *visit) get(path string, query url.Values, out any) error {
	return v.call(http.MethodGet, link(path, query), nil, out)
}

// post changes something through the API; out may be nil.
func (v *visit) post(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write a request to %s: %w", path, err)
	}
	return v.call(http.MethodPost, path, body, out)
}

func (v *visit) call(method, target string, body []byte, out any) error {
	r, err := http.NewRequestWithContext(v.r.Context(), method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request to the API: %w", err)
	}
	r.RemoteAddr = v.r.RemoteAddr
	r.Header.Set("Authorization", "Bearer "+v.Key)
	if v.Operator != "" {
		r.Header.Set(operatorHeader, v.Operator)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	a := &answer{header: http.Header{}}
	v.c.api.ServeHTTP(a, r)
	if a.status >= 300 && a.status < 400 { // an id such as .. makes another path of it
		return &refusal{Status: http.StatusNotFound, Code: "NOT_FOUND", Detail: "There is no such thing."}
	}
	if a.status >= 400 {
		problem := &refusal{}
		if err := json.Unmarshal(a.body.Bytes(), problem); err != nil || problem.Code == "" {
			return fmt.Errorf("the API answered %s %s with %d and no problem document", method, r.URL.Path, a.status)
		}
		problem.Status = a.status
		return problem
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(a.body.Bytes(), out); err != nil {
		return fmt.Errorf("read the API's answer to %s %s: %w", method, r.URL.Path, err)
	}
	return nil
}

// answer is what the API answers to a call in this process.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// The API bounds how long a body may take to come. One that is in memory takes no time.

// SetReadDeadline does nothing.
func (a *answer) SetReadDeadline(time.Time) error { return nil }

// value is a parameter of the page's address, or of the form that was sent to it.
func (v *visit) value(name string) string { return v.r.FormValue(name) }

// show writes a page. section is the entry of the menu that it belongs to.
func (v *visit) show(status int, name, title, section string, data any) {
	p := page{Title: title, Section: section, Operator: v.Operator, Key: &v.key, Data: data}
	var said notice
	if readCookie(v.r, noticeCookie, &said) {
		dropCookie(v.w, v.r, noticeCookie)
		p.Notice = &said
	}
	v.c.pages.write(v.c.log, v.w, v.r, status, name, p)
}

// noticeCookie carries what the page after a change says once.
const noticeCookie = "tidings_said"

type notice struct {
	Text string `json:"text"`
}

// done goes to a page, after a change, that says once what was done.
func (v *visit) done(target, format string, args ...any) {
	setCookie(v.w, v.r, noticeCookie, notice{fmt.Sprintf(format, args...)}, time.Minute)
	http.Redirect(v.w, v.r, target, http.StatusSeeOther)
}

// link is a path with those parameters that are not empty.
func link(path string, query url.Values) string {
	full := url.Values{}
	for name, values := range query {
		for _, value := range values {
			if value != "" {
				full.Add(name, value)
			}
		}
	}
	if len(full) == 0 {
		return path
	}
	return path + "?" + full.Encode()
}
