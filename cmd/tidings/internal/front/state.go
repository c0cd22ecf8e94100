// GET /dev/state: everything that the demo page shows.

package front

import "net/http"

// state is everything that the demo page shows of the development server.
type state struct {
	Conv     string               `json:"conv"`
	People   []personState        `json:"people"`
	Lines    map[string]lineState `json:"lines"` // by device
	Gateways []gatewayState       `json:"gateways"`
	Backup   *backup              `json:"backup"`
	Busy     string               `json:"busy"`
	Console  string               `json:"console"`
	Key      string               `json:"key"`
	Log      []entry              `json:"log"` // the newest last
}

type personState struct {
	User    string        `json:"user"`
	Name    string        `json:"name"`
	Token   string        `json:"token"`
	Devices []deviceState `json:"devices"`
}

type deviceState struct {
	Device string `json:"device"`
	Kind   string `json:"kind"`
	Line   string `json:"line"` // the path before /v1/ws and /readyz
}

type gatewayState struct {
	Name  string `json:"name"`
	State string `json:"state"`
	PID   int    `json:"pid"` // 0: there is no process
}

func (f *Front) showState(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, f.state())
}

func (f *Front) state() *state {
	s := &state{Conv: f.o.Conv, Lines: map[string]lineState{}, Console: "/console", Key: f.o.Key, Log: f.log.all()}
	for _, p := range f.o.People {
		person := personState{User: p.User, Name: p.Name, Token: p.Token}
		for _, d := range p.Devices {
			person.Devices = append(person.Devices, deviceState{Device: d.ID, Kind: d.Kind, Line: "/dev/line/" + d.ID})
		}
		s.People = append(s.People, person)
	}
	for device, l := range f.lines {
		s.Lines[device] = l.state()
	}
	for _, g := range f.o.Children.gateways {
		s.Gateways = append(s.Gateways, gatewayOf(g))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Backup, s.Busy = f.backup, f.busy
	return s
}

func gatewayOf(g *child) gatewayState {
	state, pid := g.now()
	return gatewayState{Name: g.name, State: state, PID: pid}
}
