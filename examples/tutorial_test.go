// Holds the tutorial's files to the examples: they are the same, so that the examples are what a reader ends with.

package examples_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// places says where the directories of the tutorial's reader stand here.
var places = map[string]string{"my-chat": "chat-app", "my-shop": "notify-in-transaction"}

var fileBlock = regexp.MustCompile("(?ms)^```\\w+ title=(\\S+)\n(.*?)^```$")

func TestTutorialFilesAreTheExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, block := range fileBlock.FindAllStringSubmatch(string(text), -1) {
		dir, file, _ := strings.Cut(block[1], "/")
		seen[dir] = true
		example, err := os.ReadFile(path.Join(places[dir], file))
		if err != nil {
			t.Error(err)
		} else if string(example) != block[2] {
			t.Errorf("%s in docs/tutorial.md is not examples/%s", block[1], path.Join(places[dir], file))
		}
	}
	if len(seen) != len(places) {
		t.Errorf("the tutorial has files for %v, expected are %v", seen, places)
	}
}
