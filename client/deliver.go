// The one ordered stream of news to the application.

package client

// news is what Handle has to hear, in order. It is bounded by what it speaks of: the connection is in it once, a conversation once
// with its log and once with its read cursor, and messages are counted by Config.MaxOutbox.
type news struct {
	list    []item
	wake    chan struct{}
	inState bool
}

// item is something to tell; what may change until it is told is looked up then.
type item struct {
	v      *conversation // its log
	read   *conversation // its read cursor
	update Update        // nil: the state, if the others are nil too
}

func (c *Client) push(i item) {
	if c.cfg.Handle == nil {
		return
	}
	c.news.list = append(c.news.list, i)
	signal(c.news.wake)
}

func (c *Client) tell(u Update) { c.push(item{update: u}) }

func (c *Client) tellLog(v *conversation) {
	if !v.inNews && c.cfg.Handle != nil {
		v.inNews = true
		c.push(item{v: v})
	}
}

func (c *Client) tellRead(v *conversation) {
	if !v.movedInNews && c.cfg.Handle != nil {
		v.movedInNews = true
		c.push(item{read: v})
	}
}

func (c *Client) changeState(s Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setState(s)
}

func (c *Client) setState(s Connection) {
	c.state = s
	if !c.news.inState && c.cfg.Handle != nil {
		c.news.inState = true
		c.push(item{})
	}
}

// deliver calls Handle until the client is closed.
func (c *Client) deliver() {
	for {
		u, done := c.nextUpdate()
		if u == nil {
			select {
			case <-c.ctx.Done():
				return
			case <-c.news.wake:
			}
			continue
		}
		c.cfg.Handle(u)
		if done != nil {
			c.mu.Lock()
			done()
			c.mu.Unlock()
		}
		if c.ctx.Err() != nil {
			return
		}
	}
}

// nextUpdate takes the next thing to tell; done is called with the lock when it was told.
func (c *Client) nextUpdate() (u Update, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.news.list) > 0 {
		next := c.news.list[0]
		if next.v != nil {
			if u, done = c.logUpdate(next.v); u != nil {
				return u, done
			}
			next.v.inNews = false
		}
		c.news.list[0] = item{}
		if c.news.list = c.news.list[1:]; len(c.news.list) == 0 {
			c.news.list = nil
		}
		switch {
		case next.v != nil:
		case next.read != nil:
			next.read.movedInNews = false
			return next.read.moved, nil
		case next.update == nil:
			c.news.inState = false
			return c.state, nil
		default:
			if _, ok := next.update.(Ended); ok {
				done = func() { c.box.untold-- }
			}
			return next.update, done
		}
	}
	return nil, nil
}

// logUpdate is the next thing to tell of a log.
func (c *Client) logUpdate(v *conversation) (u Update, done func()) {
	if v.dropped {
		v.dropped = false
		return Dropped{Conv: v.conv, Epoch: v.log.epoch}, nil
	}
	for len(v.recalls) > 0 {
		seq := v.recalls[0]
		v.recalls = v.recalls[1:]
		if p := v.log.find(seq); p != nil && p.event != nil {
			return Recalled{v.log.epoch, *p.event}, nil
		}
	}
	p := v.log.find(v.told + 1)
	if p == nil {
		return nil, nil
	}
	epoch, to, resets := v.log.epoch, p.to, v.resets
	v.telling = to
	done = func() {
		if v.resets == resets && v.told < to { // otherwise it was told of a copy that is no more, perhaps of the same epoch
			v.told = to
			v.log.forget(to, c.cfg.Keep)
			c.look(v)
		}
	}
	if p.event == nil {
		return Withheld{v.conv, epoch, max(p.from, v.told+1), p.to, p.why}, done
	}
	return Arrived{epoch, *p.event}, done
}
