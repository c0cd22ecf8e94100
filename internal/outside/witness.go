// The witness: what a process knew of the database at its newest commit.

package outside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tidings-project/tidings"
)

// witnessName is the witness's name in its directory.
const witnessName = "witness.json"

// Witness is which PostgreSQL history was served, how far it had come, and the newest of what was acknowledged to clients. A
// database that has less than that has lost something.
type Witness struct {
	At               time.Time        `json:"at"` // when it was written, by the writer's clock; for people
	SystemIdentifier string           `json:"system_identifier"`
	Timeline         int64            `json:"timeline"`
	LSN              string           `json:"lsn"`
	DatabaseOID      uint32           `json:"database_oid"`
	LogOID           uint32           `json:"log_oid"`
	Generation       int64            `json:"generation"`
	RecordedAt       time.Time        `json:"recorded_at"` // of the lineage's row
	Events           []WitnessedEvent `json:"events"`
}

// WitnessedEvent is an event of a log: by its mid or, where it has none, by its time.
type WitnessedEvent struct {
	Conv  string       `json:"conv"`
	Epoch int64        `json:"epoch"`
	Seq   int64        `json:"seq"`
	Mid   tidings.UUID `json:"mid,omitzero"`
	At    time.Time    `json:"at"` // by the database's clock; of an event with a mid in whole milliseconds
}

// WitnessPath is where a directory's witness is.
func WitnessPath(dir string) string { return filepath.Join(dir, witnessName) }

// ReadWitness reads the witness of a directory; nil when there is none, or no such directory. One that is there and cannot be read is
// an error: it may tell of a loss.
func ReadWitness(dir string) (*Witness, error) {
	text, err := os.ReadFile(WitnessPath(dir))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	var w Witness
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err == nil && (w.SystemIdentifier == "" || w.LSN == "") {
		err = errors.New("it names no database")
	}
	if err != nil {
		return nil, fmt.Errorf("read the witness: %w", err)
	}
	return &w, nil
}

// WriteWitness puts w in the place of a directory's witness and returns when it is on disk. Whoever reads meanwhile, and whoever
// reads after a crash, finds the old one or the new one whole. The directory is made if it is not there.
func WriteWitness(dir string, w *Witness) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the witness: %w", err)
		}
	}()
	text, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, witnessName+".*") // of its own, because several processes may write
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), WitnessPath(dir))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncDir(dir)
}
