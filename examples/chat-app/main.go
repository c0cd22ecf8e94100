// A small chat: this server knows who its users are; Tidings keeps what they say and delivers it.

package main

import (
	"embed"
	"encoding/json"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const tidings = "http://127.0.0.1:8080" // where tidings dev listens

//go:embed static
var files embed.FS

func main() {
	key, secret := read(".tidings/key"), read(".tidings/secret") // tidings dev wrote them

	// The conversation is created with the server's key. Creating it again alike is no error.
	r, err := http.NewRequest("PUT", tidings+"/v1/conversations/c-hello", strings.NewReader(`{"members":["u-ana","u-ben"]}`))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode >= 300 {
		log.Fatal("create the conversation: ", answer.Status)
	}

	// The page asks here for a token, and shows it to Tidings.
	http.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		user := r.FormValue("user") // pretended: your server looks at its session
		if user != "u-ana" && user != "u-ben" {
			http.Error(w, "sign in first", http.StatusUnauthorized)
			return
		}
		now := time.Now()
		expires := now.Add(time.Hour)
		token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"sub": user, "aud": "tidings", "iat": now.Unix(), "exp": expires.Unix(),
		})
		text, err := token.SignedString([]byte(secret))
		if err != nil {
			http.Error(w, "no token", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"text": text, "expires": expires.UnixMilli()})
	})

	static, err := fs.Sub(files, "static")
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("GET /", http.FileServerFS(static))
	log.Print("open http://127.0.0.1:9000/?user=u-ana and http://127.0.0.1:9000/?user=u-ben")
	log.Fatal(http.ListenAndServe("127.0.0.1:9000", nil))
}

func read(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal("does tidings dev run, and is this its directory? ", err)
	}
	return string(text)
}
