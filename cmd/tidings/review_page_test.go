// Tests of the page that a person judges a task by.

package main

import (
	"strings"
	"testing"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/api"
	"github.com/tidings-project/tidings/internal/store"
)

// A body that is read at the call stands nowhere: the page says whose it is, and does not leave it out as if there was none.
func TestReviewPageOfAPreview(t *testing.T) {
	var page strings.Builder
	printReview(&page, api.Review{TaskDetail: store.TaskDetail{Title: "New message", About: &tidings.About{Conv: "c-team", Seq: 7}, Preview: true}})
	text := strings.Join(strings.Fields(page.String()), " ")
	for _, words := range []string{"about message 7 of c-team", "body the beginning of that message"} {
		if !strings.Contains(text, words) {
			t.Errorf("the page does not say %q:\n%s", words, page.String())
		}
	}
}
