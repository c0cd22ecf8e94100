// Gateways, and at which of them a user's devices are.

package console

import (
	"net/http"
	"net/url"
	"time"
)

// gateway is a process that holds sockets.
type gateway struct {
	Gateway    string     `json:"gateway"`
	Alive      bool       `json:"alive"`
	Draining   bool       `json:"draining"`
	LeaseUntil *time.Time `json:"lease_until"`
	Routes     int        `json:"routes"`
}

func listGateways(v *visit) error {
	var out struct {
		Gateways []gateway `json:"gateways"`
	}
	if err := v.get("/v1/operator/gateways", nil, &out); err != nil {
		return err
	}
	v.show(http.StatusOK, "gateways", "Gateways", "gateways", out.Gateways)
	return nil
}

// userPage is where a user's devices are.
type userPage struct {
	User    string `json:"-"`
	Devices []struct {
		Device     string `json:"device"`
		InstallNo  int64  `json:"install_no"`
		Gateway    string `json:"gateway"`
		Connection string `json:"connection"`
		Version    int64  `json:"version"`
		Current    bool   `json:"current"`
	} `json:"devices"`
	More bool `json:"more"`
}

func showUser(v *visit) error {
	p := userPage{User: v.value("user")}
	if p.User == "" {
		return invalid("Name a user.")
	}
	if err := v.get("/v1/operator/users/"+url.PathEscape(p.User)+"/routes", nil, &p); err != nil {
		return err
	}
	v.show(http.StatusOK, "user", "User "+p.User, "gateways", p)
	return nil
}
