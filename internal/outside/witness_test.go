// Tests of the witness file.

package outside_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/internal/outside"
)

func witness(seq int64) *outside.Witness {
	at := time.Date(2026, 11, 30, 3, 12, 0, 123456000, time.UTC)
	return &outside.Witness{At: at, SystemIdentifier: "7412345678901234567", Timeline: 2, LSN: "1/A0B0C0D0", DatabaseOID: 5, LogOID: 16400,
		Generation: 1 << 50, RecordedAt: at, Events: []outside.WitnessedEvent{
			{Conv: "c", Epoch: 1 << 50, Seq: seq, Mid: tidings.UUID{1, 2}, At: at}, {Conv: "c", Epoch: 1 << 50, Seq: seq + 1, At: at}}}
}

func TestWitness(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outside")
	if w, err := outside.ReadWitness(dir); w != nil || err != nil {
		t.Fatalf("where none is: %v, %v", w, err)
	}
	for seq := range int64(3) {
		if err := outside.WriteWitness(dir, witness(seq)); err != nil {
			t.Fatal(err)
		}
		got, err := outside.ReadWitness(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(witness(seq), got); diff != "" {
			t.Error(diff)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the directory holds %v, %v", files, err)
	}
}

// A witness that cannot be read is no absent one: a start must not go on without it.
func TestWitnessThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "{", "null", "{}", `{"system_identifier":"1"}`, `{"system_identifier":"1","lsn":"0/1","timeline":"x"}`} {
		if err := os.WriteFile(outside.WitnessPath(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if w, err := outside.ReadWitness(dir); err == nil {
			t.Errorf("%q was read as %+v", text, w)
		}
	}
}

// Several processes may write at once: what is read is always whole.
func TestWitnessOfSeveral(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for i := range int64(4) {
		writers.Go(func() {
			for range 20 {
				if err := outside.WriteWitness(dir, witness(i)); err != nil {
					t.Error(err)
				}
				if w, err := outside.ReadWitness(dir); err != nil || len(w.Events) != 2 {
					t.Errorf("read %+v, %v", w, err)
				}
			}
		})
	}
	writers.Wait()
}
