// The check 33-clock.

package lab_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidings-project/tidings"
	"github.com/tidings-project/tidings/lab"
	"github.com/tidings-project/tidings/lab/fault"
	"github.com/tidings-project/tidings/lab/worker"
)

func init() {
	lab.Register(lab.Check{
		ID: "33-clock",
		Expect: "with the worker's wall clock an hour ahead and an hour behind: a notification is sent at once, an expired one is not, one for later " +
			"waits, a lease that runs is left alone, one that is over is taken, a new lease is as long as configured, a retry comes in time",
		Run: movedClock,
	})
}

func movedClock(t *lab.T) {
	s := newScene(t)
	program, err := shiftedWorker()
	t.Must("build a worker with a clock of its own", err)
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		s.clock(program, name, offset)
	}
}

// clock lets a worker whose clock is moved decide everything that depends on time. The channel has its name, so that each
// has its own tasks.
func (s *scene) clock(program, name string, offset time.Duration) {
	s.Helper()
	const half = 30 * time.Minute // between the two clocks
	tell := func(what string, options ...func(*tidings.Notification)) tidings.UUID {
		return s.tell(name+"-"+what, name, options...)
	}
	lane := worker.Channel{Name: name, Mode: push, Timeout: time.Second, Lease: 10 * time.Second}

	// Two tasks whose holders died: one lease runs for half an hour, the other has been over for that long.
	s.script(push, hang, hang)
	held, over := tell("held"), tell("over")
	mortal := s.process(worker.Config{Name: "mortal", Channels: []worker.Channel{{Name: name, Mode: push, Timeout: soon, Lease: half}}})
	s.accepted(held)
	s.accepted(over)
	s.Fault(mortal.Kill())
	s.gone("mortal")
	s.Equal("leases that were ended", 1, s.exec(`UPDATE tidings.task SET lease_until = lease_until - 2 * $2::interval WHERE id = $1 AND state = 'SENDING'`, over, half))

	later := time.Now().Add(half)
	expired, waiting := tell("expired"), tell("waiting", func(n *tidings.Notification) { n.NotBefore = &later })
	s.Equal("notifications that were aged", 1, s.exec(`UPDATE tidings.notification SET created_at = created_at - 4 * $2::interval, expires_at = statement_timestamp() - $2::interval
		WHERE user_id = $1`, name+"-expired", half))
	normal := tell("normal", ttl(time.Minute))

	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", shiftVar, int(offset.Seconds())))
	p := s.start(worker.Config{Name: name, Channels: []worker.Channel{lane}}, cmd)
	s.Fault(s.shifted(name, offset, p.Await("READY", soon)))

	s.becomes(normal, tidings.Sent)
	s.becomes(over, tidings.Sent)
	s.becomes(expired, tidings.Failed)
	s.script(push, hang)
	retried := tell("retried", ttl(time.Minute))
	s.accepted(retried)
	s.Equal(name+": a new lease", lane.Lease, one[time.Duration](s, `SELECT t.lease_until - a.started_at FROM tidings.task t
		JOIN tidings.attempt a ON a.task_id = t.id AND a.token = t.attempt_token WHERE t.id = $1`, retried))
	s.becomes(retried, tidings.Sent)
	marker := tell("marker")
	s.becomes(marker, tidings.Sent)

	s.Equal(name+": journal of the normal one", []tidings.Outcome{tidings.Accepted}, s.journal(normal))
	s.Equal(name+": journal of the expired one", []tidings.Outcome{tidings.TTLExpired}, s.journal(expired))
	s.Equal(name+": requests for the expired one", 0, s.counts(expired).Requests)
	s.Equal(name+": journal after the lease that was over", []tidings.Outcome{tidings.LeaseExpired, tidings.AcceptedReplay}, s.journal(over))
	s.Equal(name+": journal of the retried one", []tidings.Outcome{tidings.Timeout, tidings.AcceptedReplay}, s.journal(retried))
	s.Equal(name+": the one whose lease runs", tidings.Sending, s.where(held).State)
	s.Equal(name+": journal of the one whose lease runs", []tidings.Outcome{open}, s.journal(held))
	s.Equal(name+": the one for later", tidings.Pending, s.where(waiting).State)
	s.Equal(name+": attempts of the one for later", 0, s.where(waiting).Attempts)
	s.Fault(p.Kill())
}

// shifted is the receipt of a moved clock, from the line that a worker prints when it is ready.
func (s *scene) shifted(name string, offset time.Duration, ready string) fault.Receipt {
	s.Helper()
	fields := strings.Fields(ready)
	says, err := time.Parse(time.RFC3339Nano, fields[len(fields)-1])
	s.Must("read the worker's clock", err)
	const slack = time.Minute // to start up
	proof := ""
	if database := one[time.Time](s, `SELECT clock_timestamp()`); says.Sub(database.Add(offset)).Abs() < slack {
		proof = fmt.Sprintf("its clock is %v from the database's", says.Sub(database).Round(time.Second))
	}
	return fault.New("clock moved", "worker "+name, proof)
}

// shiftVar moves the wall clock of a shifted program, by seconds.
const shiftVar = "TIDINGS_LAB_CLOCK"

// shiftedWorker builds the worker with a package time whose wall clock, and it alone, can be moved: a step of a host's
// clock does not move the monotonic one either. Other ways do not reach a Go program, which asks the kernel itself.
var shiftedWorker = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of Go: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), now) != 1 {
		return "", errors.New("time.Now of this Go release is written in another way")
	}
	const shift = "package time\n\nimport \"syscall\"\n\nvar shift = func() int64 {\n\ttext, _ := syscall.Getenv(\"" + shiftVar + "\")\n" +
		"\tn, _ := atoi(text)\n\treturn int64(n)\n}()\n"
	dir := filepath.Join(lab.Root(), "bin", "_shifted") // the go command does not look into it by itself
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		source: filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(source), "shift.go"): filepath.Join(dir, "shift.go"),
	}})
	if err != nil {
		return "", err
	}
	files := map[string]string{"overlay.json": string(overlay), "shift.go": shift,
		"time.go": strings.Replace(string(text), now, now+"\tsec += shift\n", 1)}
	err = os.MkdirAll(dir, 0o755)
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("worker.%d", os.Getpid()))
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "./cmd/worker").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	final := filepath.Join(dir, "worker")
	return final, os.Rename(path, final)
})
