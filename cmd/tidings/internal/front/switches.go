// The switches of lines and gateways.

package front

import (
	"net/http"

	"github.com/tidings-project/tidings"
)

// onLine finds the line of the path.
func (f *Front) onLine(do func(*line, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l := f.lines[r.PathValue("device")]
		if l == nil {
			refuse(w, notFound("there is no such device"))
			return
		}
		do(l, w, r)
	}
}

func (f *Front) changeLine(w http.ResponseWriter, r *http.Request) {
	f.onLine(func(l *line, w http.ResponseWriter, r *http.Request) {
		var c lineChange
		if err := read(w, r, &c); err != nil {
			refuse(w, err)
			return
		}
		l.change(c)
		answer(w, http.StatusOK, l.state())
	})(w, r)
}

// orderGateway kills a gateway, tells it to stop, or starts it before it would start by itself.
func (f *Front) orderGateway(w http.ResponseWriter, r *http.Request) {
	g := f.o.Children.gateway(r.PathValue("name"))
	if g == nil {
		refuse(w, notFound("there is no such gateway"))
		return
	}
	var order struct {
		Do string `json:"do"`
	}
	err := read(w, r, &order)
	if err == nil {
		switch order.Do {
		case "kill":
			err = g.kill()
		case "drain":
			err = g.drain()
		case "start":
			g.start()
		default:
			err = tidings.Errorf(tidings.InvalidArgument, "a gateway can be told to kill, drain or start")
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, gatewayOf(g))
}
