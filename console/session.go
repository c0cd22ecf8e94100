// Signing in and out. docs/decisions/console.md says why the cookie holds the key.

package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	sessionCookie = "tidings_console"
	sessionTime   = 12 * time.Hour
	clocksDiffer  = 5 * time.Minute // between two processes that serve the console
)

// session is what a browser keeps of somebody who signed in.
type session struct {
	Key      string    `json:"key"`
	Operator string    `json:"operator"` // stands in journals
	Since    time.Time `json:"since"`
}

// keyInfo is what the API says about a key.
type keyInfo struct {
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
}

// has tells whether the key that was signed in with has a scope.
func (k keyInfo) has(scope string) bool { return slices.Contains(k.Scopes, scope) }

// setCookie gives the browser a value for the console alone. Without an age it ends with the browser.
func setCookie(w http.ResponseWriter, r *http.Request, name string, value any, age time.Duration) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values are structs of strings and times
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: base64.RawURLEncoding.EncodeToString(text), Path: home, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: secure(r), MaxAge: int(age / time.Second)})
}

func dropCookie(w http.ResponseWriter, r *http.Request, name string) {
	http.SetCookie(w, &http.Cookie{Name: name, Path: home, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure(r), MaxAge: -1})
}

// readCookie tells whether there was a value that could be read.
func readCookie(r *http.Request, name string, value any) bool {
	cookie, err := r.Cookie(name)
	if err != nil {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	return err == nil && json.Unmarshal(text, value) == nil
}

// secure tells whether the browser came by TLS, to this process or to the proxy before it.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// readSession tells whether somebody has signed in and how that stands.
func readSession(r *http.Request) (s session, ok bool) {
	if !readCookie(r, sessionCookie, &s) {
		return s, false
	}
	age := time.Since(s.Since)
	return s, s.Key != "" && age > -clocksDiffer && age < sessionTime
}

// signInForm is what the form shows. It never shows a key.
type signInForm struct {
	Operator string
	Next     string
	Problem  string
	Back     bool // somebody came from elsewhere, and may be signed in
}

func (c *console) signInPage(w http.ResponseWriter, r *http.Request) {
	next := within(r.FormValue("next"))
	c.pages.write(c.log, w, r, http.StatusOK, "sign-in", page{Title: "Sign in", Data: signInForm{Next: next, Back: r.FormValue("next") != ""}})
}

// signIn asks the API about the key, whatever it looks like: what a wrong one costs tells nothing about it.
func (c *console) signIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		c.pages.write(c.log, w, r, http.StatusBadRequest, "sign-in", page{Title: "Sign in", Data: signInForm{Next: home, Problem: "The form could not be read."}})
		return
	}
	s := session{Key: strings.TrimSpace(r.PostForm.Get("key")), Operator: strings.TrimSpace(r.PostForm.Get("operator")), Since: time.Now().UTC()}
	form := signInForm{Operator: s.Operator, Next: within(r.PostForm.Get("next"))}
	status := http.StatusBadRequest
	switch v, err := c.visit(w, r, s); {
	case s.Key == "":
		form.Problem = "The key is missing."
	case s.Operator == "":
		form.Problem = "Your name is missing: it stands in the journal of all that you settle."
	case err != nil:
		problem := refusalOf(err)
		status, form.Problem = problem.Status, problem.Code+": "+problem.Detail
		if problem.Code == "UNAUTHENTICATED" {
			form.Problem = "This key is unknown or revoked. Nobody was signed in."
		}
	default:
		if form.Next == home && !v.key.has("operate") && v.key.has("review") {
			form.Next = home + "/reviews" // the first page that the key may see
		}
		setCookie(w, r, sessionCookie, v.session, 0)
		http.Redirect(w, r, form.Next, http.StatusSeeOther)
		return
	}
	c.pages.write(c.log, w, r, status, "sign-in", page{Title: "Sign in", Data: form})
}

func (c *console) signOut(w http.ResponseWriter, r *http.Request) {
	dropCookie(w, r, sessionCookie)
	dropCookie(w, r, resultsCookie)
	http.Redirect(w, r, home+"/sign-in", http.StatusSeeOther)
}

// toSignIn sends somebody who is not signed in, or whom a page of elsewhere has sent, to the form, and from there back to the page.
func toSignIn(w http.ResponseWriter, r *http.Request) {
	target := home + "/sign-in"
	if r.Method == http.MethodGet && (r.URL.Path != home || fromElsewhere(r)) {
		target += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// fromElsewhere tells whether a page of another origin has made the browser ask. The cookie does not come along from another site; from another port or a sibling's
// name it does, and an image there could load a page whose loading is logged.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "same-site" || site == "cross-site"
}

// within is an address inside the console: the given one, or its first page. An address that leads elsewhere is not followed.
func within(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || strings.ContainsAny(next, "\\\r\n\t") || u.Path != home && !strings.HasPrefix(u.Path, home+"/") || strings.Contains(u.Path, "..") {
		return home
	}
	return u.RequestURI()
}
