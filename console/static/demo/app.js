// Built from console/web/src/app.ts by make web; do not edit.

// console/web/src/dom.ts
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== void 0 && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== void 0));
  return made;
}
function setText(node, text2) {
  if (node.textContent !== text2) node.textContent = text2;
}
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}
var KeyedList = class {
  #list;
  #make;
  #made = /* @__PURE__ */ new Map();
  constructor(list, make) {
    this.#list = list;
    this.#make = make;
  }
  /** Shows items in order. Tells whether anything has changed. */
  show(items) {
    let changed = false;
    const wanted = new Set(items.map((i) => i.key));
    const lose = (node) => {
      if (node.contains(document.activeElement)) this.#list.focus();
      changed = true;
    };
    for (const [key, { node }] of this.#made) {
      if (wanted.has(key)) continue;
      lose(node);
      node.remove();
      this.#made.delete(key);
    }
    let before = this.#list.firstElementChild;
    for (const { key, signature, item } of items) {
      const had = this.#made.get(key);
      let node = had?.node;
      if (!node || had?.signature !== signature) {
        const fresh = this.#make(item);
        if (node) {
          lose(node);
          if (before === node) before = fresh;
          node.replaceWith(fresh);
        }
        node = fresh;
        changed = true;
        this.#made.set(key, { signature, node });
      }
      if (before === node) before = node.nextElementSibling;
      else this.#list.insertBefore(node, before);
    }
    return changed;
  }
};

// console/web/src/words.ts
function nameOf(device) {
  return device.split("-").at(-1) ?? device;
}
function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}
function connectionText(d, now) {
  const { state: state2, code, error } = d.connection;
  const seconds = (at) => `${Math.max(0, Math.ceil((at - now) / 1e3))} s`;
  switch (state2) {
    case "online":
      if (d.drainAt > 0) return `online; its gateway stops, it moves in ${seconds(d.drainAt)}`;
      return d.watch.here ? "online" : "online, through another tab of this browser";
    case "offline":
      if (!error) return "connecting";
      return d.retryAt > now ? `offline; tries again in ${seconds(d.retryAt)}` : "offline; trying";
    case "stopped":
      return code === 4404 || code === 4410 ? "stopped: this device is open in another browser" : `stopped: ${error?.message ?? "closed"}`;
  }
}
function entryText(d, e) {
  const asked = d.asked.get(e.cmid);
  if (asked !== void 0) return `your decision: ${asked}`;
  if (d.connection.state !== "online") return e.inDoubt ? "unknown whether it is stored: it is sent again under the same cmid" : "waits for the network; nothing of it is stored";
  return e.inDoubt ? "sent again under the same cmid, no answer yet" : "on its way, no answer yet";
}
function pieceText(p, name) {
  const e = p.event;
  if (!e) return p.why === "trimmed" ? "older than what is kept" : p.why === "not_member" ? "hidden: not a member at that time" : p.why ?? "";
  switch (e.kind) {
    case "msg":
      return e.recalled ? "recalled" : e.body ?? "";
    case "recall":
      return `${name(e.sender)} took #${e.target} back${e.actor ? `, by ${e.actor}` : ""}`;
    case "join":
      return `${name(e.sender)} joined`;
    case "leave":
      return `${name(e.sender)} left`;
    default:
      return `${e.kind}: of a kind that this page does not know`;
  }
}

// console/web/src/card.ts
var Card = class {
  node;
  #device;
  #around;
  #state = el("p", { class: "state" });
  #epoch = el("code", {}, "–");
  #unread = el("span", { class: "badge" });
  #readUpTo = el("small");
  #markRead;
  #takeBack;
  #log;
  #pieces;
  #outbox;
  #notices;
  #box;
  #online = el("input", { type: "checkbox", role: "switch" });
  #lose = el("input", { type: "checkbox" });
  #shuffle = el("input", { type: "checkbox" });
  #gateway = el("span");
  constructor(device, around) {
    this.#device = device;
    this.#around = around;
    const { device: id, kind } = device.info;
    const title = `${device.person.name}’s ${kind}`;
    this.#log = el("ol", { class: "log", tabindex: "0", "aria-label": `Log on ${title}` });
    this.#pieces = new KeyedList(this.#log, (p) => this.#piece(p));
    const waiting = el("ol", { class: "waiting", tabindex: "-1" });
    this.#outbox = new KeyedList(waiting, (e) => this.#entry(e));
    this.#box = el("section", { class: "outbox", "aria-label": `Outbox of ${title}`, hidden: true }, el("h4", {}, "Outbox"), waiting);
    const notices = el("ul", { class: "notices", tabindex: "-1", "aria-label": `Notices of ${title}` });
    this.#notices = new KeyedList(notices, (n) => this.#notice(n));
    this.#markRead = el("button", { type: "button", onclick: () => device.markRead() }, "Mark as read");
    this.#takeBack = el("button", { type: "button", hidden: true, onclick: () => device.reconnect() }, "Take the device back");
    this.node = el(
      "article",
      { class: `card ${kind}`, "data-device": id, "aria-label": title },
      el("header", {}, el("h3", {}, title), this.#unread),
      this.#switches(title),
      this.#state,
      this.#takeBack,
      el("p", { class: "meta" }, "epoch ", this.#epoch),
      this.#log,
      notices,
      this.#box,
      this.#composer(title),
      el("p", { class: "tools" }, this.#markRead, this.#readUpTo)
    );
    const ask2 = (input, change) => input.addEventListener("change", () => around.change(device, change(input.checked)));
    ask2(this.#online, (online) => ({ online }));
    ask2(this.#lose, (lose) => ({ lose_reply: lose }));
    ask2(this.#shuffle, (shuffle) => ({ shuffle }));
  }
  #switches(title) {
    const cut = el("button", { type: "button", onclick: () => this.#around.change(this.#device, { cut: true }) }, "Cut");
    return el(
      "fieldset",
      { class: "line" },
      el("legend", {}, el("span", { class: "hidden" }, `Network of ${title}: `), "via ", this.#gateway),
      el("label", { class: "switch" }, this.#online, " online"),
      cut,
      el("label", {}, this.#lose, " lose the next reply"),
      el("label", {}, this.#shuffle, " shuffle pushes")
    );
  }
  #composer(title) {
    const input = el("input", { type: "text", autocomplete: "off", maxlength: "2000", placeholder: "Write something", "aria-label": `Message from ${title}` });
    const form = el("form", { class: "composer" }, input, el("button", { type: "submit", class: "main" }, "Send"));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      const text2 = input.value;
      if (text2.trim() === "") return;
      this.#around.attempt(async () => {
        await this.#device.send(text2);
        if (input.value === text2) input.value = "";
      });
    });
    return form;
  }
  /** Shows what the line is, as the server says. */
  line(state2) {
    const line = state2.lines[this.#device.info.device];
    if (!line) return;
    this.#online.checked = line.online;
    this.#lose.checked = line.lose_reply;
    this.#shuffle.checked = line.shuffle;
    setText(this.#gateway, line.online && line.gateway ? `gateway ${line.gateway}` : "no gateway");
  }
  paint() {
    const d = this.#device;
    const { state: state2 } = d.connection;
    const atEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 40;
    this.node.dataset["state"] = state2;
    setText(this.#state, connectionText(d, Date.now()));
    this.#takeBack.hidden = state2 !== "stopped";
    setText(this.#epoch, d.epoch ? String(d.epoch) : "–");
    const { unread } = d;
    setText(this.#unread, unread > 0 ? `${unread} unread` : "");
    this.#unread.hidden = unread === 0;
    setText(this.#readUpTo, d.read.seq > 0 && d.read.epoch === d.epoch ? `read up to #${d.read.seq}` : "nothing read");
    this.#markRead.disabled = d.head === 0 || d.read.epoch === d.epoch && d.read.seq >= d.head;
    this.#box.hidden = d.waiting.length === 0;
    const online = state2 === "online";
    this.#outbox.show(d.waiting.map((e) => ({ key: e.cmid, signature: `${entryText(d, e)} ${online}`, item: e })));
    this.#notices.show(d.notices.map((n) => ({ key: n.key, signature: "", item: n })));
    this.#paintLog();
    if (atEnd) this.#log.scrollTop = this.#log.scrollHeight;
  }
  #paintLog() {
    const d = this.#device;
    const recalling = new Set(d.waiting.flatMap((e) => e.target ? [e.target.seq] : []));
    const marks = [...this.#around.reads(d.epoch)];
    this.#pieces.show(d.pieces.map((p) => {
      const readers = marks.filter(([, seq]) => seq >= p.from && seq <= p.to).map(([user]) => user).join();
      const recall = p.event && recalling.has(p.event.seq) ? "recalling" : "";
      const again = d.recognised.has(p.event?.cmid ?? "") ? "again" : "";
      return { key: `${d.epoch}:${p.from}`, signature: `${p.event?.recalled ?? ""} ${readers} ${recall} ${again}`, item: p };
    }));
  }
  #piece(p) {
    const d = this.#device;
    const e = p.event;
    const own = e?.sender === d.person.user;
    const kind = e?.kind === "msg" ? own ? "own" : "other" : "note";
    const recalling = d.waiting.some((w) => w.target?.seq === e?.seq);
    const readers = [...this.#around.reads(d.epoch)].filter(([, seq]) => seq >= p.from && seq <= p.to).map(([user]) => this.#around.name(user));
    const item = el(
      "li",
      { class: kind, "data-seq": String(p.from), "data-sender": e?.sender },
      el("span", { class: "seq" }, p.from === p.to ? `#${p.from}` : `#${p.from}–${p.to}`),
      el("span", { class: e?.kind === "msg" && e.recalled ? "text gone" : "text" }, pieceText(p, (user) => this.#around.name(user)))
    );
    if (e?.kind === "msg") {
      const by = el("div", { class: "by" }, el("small", {}, `${own ? "you" : this.#around.name(e.sender)}, ${e.sdev ? nameOf(e.sdev) : "by HTTP"}, ${clock(e.at)}`));
      if (own && !e.recalled) {
        by.append(recalling ? el("small", {}, "being taken back") : el("button", { type: "button", class: "quiet", "aria-label": `Recall #${e.seq}`, onclick: () => this.#around.attempt(() => d.recall(e.seq)) }, "Recall"));
      }
      item.append(by);
      if (d.recognised.has(e.cmid ?? "")) item.append(el("span", { class: "again" }, "sent again, and stored once"));
    }
    for (const name of readers) item.append(el("span", { class: "mark" }, `${name} has read up to here`));
    return item;
  }
  #entry(e) {
    const d = this.#device;
    const item = el("li", { "data-cmid": e.cmid }, el("span", { class: "text" }, e.target ? `Take #${e.target.seq} back` : e.body), el("small", {}, entryText(d, e)));
    if (d.asked.has(e.cmid)) item.append(el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.resend(e.cmid)) }, "Send"));
    item.append(el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.discard(e.cmid)) }, "Discard"));
    return item;
  }
  #notice(n) {
    const d = this.#device;
    const dismiss = el("button", { type: "button", class: "quiet", onclick: () => d.dismiss(n) }, "Dismiss");
    if (!n.lost) return el("li", {}, n.text, " ", dismiss);
    return el(
      "li",
      { class: "lost" },
      el("strong", {}, "Lost in the restore: "),
      `“${n.text}” was #${n.lost.sent.seq} of the former history. It is not sent again by itself. `,
      el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.sendLost(n)) }, "Send it again"),
      " ",
      dismiss
    );
  }
};

// console/web/src/dev.ts
async function ask(method, path, body) {
  const answer = await fetch(path, {
    method,
    cache: "no-store",
    ...body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {}
  });
  const text2 = await answer.text();
  if (answer.ok) return text2 === "" ? {} : JSON.parse(text2);
  let message = `${method} ${path}: ${answer.status}`;
  try {
    message = JSON.parse(text2).message || message;
  } catch {
  }
  throw new Error(message);
}
var find = (query) => `/dev/notifications?${new URLSearchParams(query)}`;
var state = () => ask("GET", "/dev/state");
var changeLine = (device, change) => ask("POST", `/dev/lines/${encodeURIComponent(device)}`, change);
var gateway = (name, what) => ask("POST", `/dev/gateways/${encodeURIComponent(name)}`, { do: what });
var backup = () => ask("POST", "/dev/backup", {});
var restore = () => ask("POST", "/dev/restore", {});
var notify = (n) => ask("POST", "/dev/notifications", n);
var notification = (user, eventKey) => ask("GET", find({ user, event_key: eventKey }));
var newest = (user) => ask("GET", find({ user }));

// console/web/src/device.ts
import { Client, codeOf } from "/client.js";

// console/web/src/wire.ts
var Watch = class {
  seen = { resends: 0, repeats: 0, gaps: 0 };
  /** The socket is in this page, not in another tab of the device. */
  here = false;
  #conv;
  #changed;
  #transmitted = /* @__PURE__ */ new Set();
  #epoch = 0;
  #cursor = 0;
  // everything up to it has come
  #ahead = /* @__PURE__ */ new Set();
  #missing = 0;
  // the hole that was heard of ends before or at this seq; 0: there is none
  /** changed is called after each frame; drain: the gateway stops in so many milliseconds. */
  constructor(conv, changed) {
    this.#conv = conv;
    this.#changed = changed;
  }
  /** The class of sockets that the client shall use. */
  get socket() {
    const sent = (text2) => this.#sent(JSON.parse(text2));
    const came = (text2) => this.#came(JSON.parse(text2));
    const opened = () => void (this.here = true);
    return class extends WebSocket {
      constructor(url, protocols) {
        super(url, protocols);
        opened();
        this.addEventListener("message", (e) => typeof e.data === "string" && came(e.data));
      }
      send(data) {
        sent(data);
        super.send(data);
      }
    };
  }
  #sent(f) {
    if ((f.t === "send" || f.t === "recall") && f.cmid) {
      if (this.#transmitted.has(f.cmid)) this.seen.resends++;
      this.#transmitted.add(f.cmid);
    }
    this.#changed();
  }
  #came(f) {
    if (f.t === "event" && f.event?.conv === this.#conv) this.#pushed(f.epoch ?? 0, f.event.seq);
    if (f.t === "events" && f.conv === this.#conv) this.#page(f);
    if (f.t === "lag" && f.conv === this.#conv) this.#heard(f.epoch ?? 0, f.head ?? 0);
    for (const l of f.t === "conversations" ? f.list ?? [] : []) if (l.conv === this.#conv) this.#heard(l.epoch, l.head);
    this.#changed(f.t === "draining" ? f.reconnect_after_ms : void 0);
  }
  #pushed(epoch, seq) {
    if (epoch !== this.#epoch) return;
    if (seq <= this.#cursor || this.#ahead.has(seq)) {
      this.seen.repeats++;
      return;
    }
    this.#ahead.add(seq);
    if (seq > this.#cursor + 1) this.#missing = Math.max(this.#missing, seq - 1);
    this.#advance();
  }
  /** Something tells how long the log is. */
  #heard(epoch, head) {
    if (epoch === this.#epoch && head > this.#cursor) this.#missing = Math.max(this.#missing, head);
  }
  #page(f) {
    const { epoch = 0, after = 0, events = [], withheld = [] } = f;
    if (epoch !== this.#epoch) {
      this.#epoch = epoch;
      this.#cursor = this.#missing = 0;
      this.#ahead.clear();
    }
    if (after > this.#cursor) return;
    this.#cursor = Math.max(this.#cursor, ...events.map((e) => e.seq), ...withheld.map((w) => w.to));
    this.#advance();
  }
  #advance() {
    for (const seq of this.#ahead) if (seq <= this.#cursor) this.#ahead.delete(seq);
    while (this.#ahead.delete(this.#cursor + 1)) this.#cursor++;
    if (this.#missing > 0 && this.#cursor >= this.#missing) {
      this.#missing = 0;
      this.seen.gaps++;
    }
  }
};

// console/web/src/device.ts
var MAX_SHOWN = 500;
var INSTALL = "demo-page";
var Device = class {
  info;
  person;
  conv;
  watch;
  told = { dups: 0, wrong: 0, epochs: 0, lost: 0 };
  connection = { type: "connection", state: "offline" };
  /** When the client connects again: milliseconds since 1970, of offline. */
  retryAt = 0;
  /** When the gateway of this connection stops; 0: nothing was said. */
  drainAt = 0;
  epoch = 0;
  pieces = [];
  read = { epoch: 0, seq: 0 };
  waiting = [];
  notices = [];
  /** The cmids of own messages that were sent again, and of which the server said: stored already. */
  recognised = /* @__PURE__ */ new Set();
  /** Why entries wait for the person's decision, by cmid. */
  asked = /* @__PURE__ */ new Map();
  #changed;
  #client;
  #token;
  #next = 1;
  // the seq that has to be told next
  #notices = 0;
  #looking = false;
  #lookAgain = false;
  /** changed is called whenever something here is different. */
  constructor(info, person, conv, changed) {
    this.info = info;
    this.person = person;
    this.conv = conv;
    this.#token = person.token;
    this.#changed = changed;
    this.watch = new Watch(conv, (drain) => {
      if (drain !== void 0) this.drainAt = Date.now() + drain;
      void this.#look();
    });
  }
  /** Loads what an earlier page left in the outbox, and begins to connect. */
  async open() {
    const url = location.origin.replace(/^http/, "ws") + `${this.info.line}/v1/ws`;
    this.#client = await Client.open({
      url,
      device: this.info.device,
      name: "tidings-demo",
      install: INSTALL,
      outbox: `tidings-page-${this.info.device}`,
      token: () => ({ text: this.#token }),
      handle: (u) => this.#handle(u),
      webSocket: this.watch.socket,
      backoffMinMs: 300,
      backoffMaxMs: 3e3,
      requestTimeoutMs: 1e4
    });
    await this.#look();
  }
  /** Takes a newer token from what the server says of itself. */
  renew(state2) {
    this.#token = state2.people.find((p) => p.user === this.person.user)?.token ?? this.#token;
  }
  get head() {
    return this.pieces.at(-1)?.to ?? 0;
  }
  /** The messages of others that are kept here and are not read. */
  get unread() {
    const from = this.read.epoch === this.epoch ? this.read.seq : 0;
    return this.pieces.filter(({ event: e }) => e && e.kind === "msg" && e.seq > from && e.sender !== this.person.user && !e.recalled).length;
  }
  async send(body) {
    await this.#need().send({ conv: this.conv, body });
    await this.#look();
  }
  async recall(seq) {
    await this.#need().recall({ conv: this.conv, target: { seq, epoch: this.epoch } });
    await this.#look();
  }
  markRead() {
    if (this.head > 0) this.#need().markRead(this.conv, this.head);
  }
  reconnect() {
    this.#client?.reconnect();
  }
  async resend(cmid) {
    this.asked.delete(cmid);
    await this.#need().resend(this.conv, cmid);
    await this.#look();
  }
  async discard(cmid) {
    this.asked.delete(cmid);
    await this.#need().discard(this.conv, cmid);
    await this.#look();
  }
  /** Sends a lost message again, as the message that it was: should the log have it after all, it stays one. */
  async sendLost(notice) {
    this.dismiss(notice);
    if (notice.lost) await this.#need().send({ conv: this.conv, cmid: notice.lost.entry.cmid, body: notice.lost.entry.body });
    await this.#look();
  }
  dismiss(notice) {
    this.notices = this.notices.filter((n) => n !== notice);
    this.#changed();
  }
  #need() {
    if (!this.#client) throw new Error(`${this.info.device} is not open yet`);
    return this.#client;
  }
  /** Looks what the outbox has; once more if something happens meanwhile. */
  async #look() {
    this.#changed();
    if (!this.#client) return;
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    try {
      while (this.#lookAgain) {
        this.#lookAgain = false;
        this.waiting = (await this.#client.waiting()).filter((e) => e.conv === this.conv);
      }
    } finally {
      this.#looking = false;
      this.#changed();
    }
  }
  #handle(u) {
    if (u.type === "connection") this.#connection(u);
    else if ("conv" in u ? u.conv === this.conv : u.entry.conv === this.conv) this.#news(u);
    void this.#look();
  }
  #connection(u) {
    this.connection = u;
    this.retryAt = u.state === "offline" ? Date.now() + (u.retryMs ?? 0) : 0;
    this.drainAt = 0;
  }
  #news(u) {
    switch (u.type) {
      case "arrived":
        return this.#arrived(u.epoch, { from: u.event.seq, to: u.event.seq, event: u.event });
      case "withheld":
        return this.#arrived(u.epoch, { from: u.from, to: u.to, why: u.why });
      case "recalled":
        this.pieces = this.pieces.map((p) => p.event?.seq === u.event.seq ? { ...p, event: u.event } : p);
        return;
      case "dropped":
        this.told.epochs++;
        this.epoch = u.epoch;
        this.pieces = [];
        this.#next = 1;
        if (u.error) this.#notice(`The log is gone: ${u.error.message}`);
        return;
      case "ended":
        return this.#ended(u);
      case "asked":
        this.asked.set(u.entry.cmid, u.error ? u.error.message : "It has waited so long that the server may no longer recognise a repetition.");
        return;
      case "lost":
        this.told.lost++;
        this.notices.push({ key: `n-${++this.#notices}`, text: u.entry.body, lost: u });
        return;
      case "read_moved":
        this.read = { epoch: u.epoch, seq: u.seq };
    }
  }
  #arrived(epoch, piece) {
    this.epoch = epoch;
    if (piece.from !== this.#next) this.told.wrong++;
    this.#next = piece.to + 1;
    this.pieces = [...this.pieces, piece].slice(-MAX_SHOWN);
  }
  #ended(u) {
    this.asked.delete(u.entry.cmid);
    if (u.sent?.dup) {
      this.told.dups++;
      this.recognised.add(u.entry.cmid);
    }
    if (!u.error || u.error.name === "DiscardedError") return;
    const what = u.entry.target ? `#${u.entry.target.seq} is not taken back` : `“${u.entry.body}” is not sent`;
    this.#notice(`${what}: ${codeOf(u.error)}, ${u.error.message}`);
  }
  #notice(text2) {
    this.notices.push({ key: `n-${++this.#notices}`, text: text2 });
  }
};

// console/web/src/notify.ts
var MAX_SHOWN2 = 6;
var MAX_KNOWN = 24;
var CONTRACTS = {
  push: { silent: true, text: "This provider recognises a repeated key for 24 hours. After silence the same request goes out again, and still there is one message." },
  sms: { silent: true, text: "This provider recognises no repetition, but can be asked. After silence it is asked for our reference, and nothing is sent again that it has." },
  plain: { silent: true, text: "This provider neither recognises a repetition nor can be asked. After silence nobody can know, so that the task waits for a person in the console." },
  email: { silent: false, text: "SMTP promises nothing when the reply to the final dot is missing: then a person decides. Here the mail server answers." },
  webhook: { silent: false, text: "A receiver that declares that it remembers ids gets the request again; this one declares nothing, so that silence would mean a person. Here it answers." }
};
var DONE = /* @__PURE__ */ new Set(["SENT", "FAILED", "SUPPRESSED"]);
var STATES = {
  PENDING: "waits for its turn",
  SENDING: "being sent",
  UNKNOWN: "unknown: it may have been accepted",
  SENT: "accepted by the provider",
  FAILED: "not sent",
  SUPPRESSED: "not sent: no longer wanted"
};
var OUTCOMES = {
  ACCEPTED: "accepted",
  ACCEPTED_REPLAY: "accepted: the provider knew it already",
  TIMEOUT: "no answer: nobody knows",
  IO_ERROR: "the connection broke: nobody knows",
  QUERY_FOUND: "asked: the provider has it",
  QUERY_NOT_FOUND: "asked: the provider does not have it",
  QUERY_FAILED: "asked, without an answer",
  REJECTED: "refused",
  NOT_SENT: "nothing was sent",
  THROTTLED: "refused for now",
  HTTP_5XX: "the provider failed"
};
var Notifications = class {
  #attempt;
  #user = byId("n-user");
  #channel = byId("n-channel");
  #silent = byId("n-silent");
  #text = byId("n-text");
  #list;
  #state;
  #known = [];
  // newest first
  #polling = false;
  constructor(attempt) {
    this.#attempt = attempt;
    this.#list = new KeyedList(byId("sent"), (w) => this.#item(w));
    for (const name of Object.keys(CONTRACTS)) this.#channel.append(el("option", { value: name }, name));
    this.#channel.addEventListener("change", () => this.#contract());
    this.#contract();
    byId("n-form").addEventListener("submit", (e) => {
      e.preventDefault();
      this.#send();
    });
  }
  paint(state2) {
    this.#state = state2;
    if (this.#user.options.length === 0) for (const p of state2.people) this.#user.append(el("option", { value: p.user }, p.name));
    for (const link of document.querySelectorAll("a.console-link")) link.href = state2.console;
    setText(byId("console-key"), state2.key);
  }
  #contract() {
    const { silent = false, text: text2 = "" } = CONTRACTS[this.#channel.value] ?? {};
    setText(byId("n-contract"), text2);
    this.#silent.disabled = !silent;
    if (!silent) this.#silent.checked = false;
  }
  #send() {
    const n = { user: this.#user.value, channel: this.#channel.value, title: "Tidings demo", body: this.#text.value, silent: this.#silent.checked };
    this.#attempt(async () => {
      const { event_key: key } = await notify(n);
      this.#known = [{ user: n.user, key }, ...this.#known];
      await this.poll();
    });
  }
  /** Looks what has become of the newest ones; the page calls it every second. */
  async poll() {
    if (this.#polling || !this.#state) return;
    this.#polling = true;
    try {
      for (const { user } of this.#state.people) {
        const keys = new Set((await newest(user)).tasks.map((t) => t.event_key));
        for (const key of [...keys].slice(0, MAX_SHOWN2)) {
          if (!this.#known.some((w) => w.user === user && w.key === key)) this.#known.push({ user, key });
        }
      }
      for (const w of this.#known.slice(0, MAX_KNOWN)) if (!done(w)) w.found = await notification(w.user, w.key);
      this.#known = this.#known.filter((w) => w.found).sort((a, b) => Date.parse(b.found?.created_at ?? "") - Date.parse(a.found?.created_at ?? "")).slice(0, MAX_KNOWN);
    } finally {
      this.#polling = false;
      const shown = this.#known.slice(0, MAX_SHOWN2);
      this.#list.show(shown.map((w) => ({ key: `${w.user} ${w.key}`, signature: JSON.stringify(w.found?.tasks ?? []), item: w })));
      byId("sent-none").hidden = shown.length > 0;
    }
  }
  #item({ user, key, found }) {
    const name = this.#state?.people.find((p) => p.user === user)?.name ?? user;
    const item = el("li", { "data-event-key": key }, el(
      "p",
      { class: "what" },
      el("strong", {}, name),
      found?.body || found?.title ? `: ${found.body || found.title}` : "",
      " ",
      el("small", {}, found ? clock(Date.parse(found.created_at)) : "", key.startsWith("unread-") ? " · unread in the chat, with no device connected" : "")
    ));
    for (const t of found?.tasks ?? []) item.append(this.#task(t));
    if (found && (found.tasks ?? []).length === 0) item.append(el("p", {}, "There is no address for it."));
    return item;
  }
  #task(t) {
    const state2 = t.review ? "waits for a person" : STATES[t.state] ?? t.state;
    const head = el("p", {}, el("span", { class: "channel" }, t.channel), " ", el("span", { class: `pill ${t.review ? "review" : t.state.toLowerCase()}` }, t.state), ` ${state2}`);
    if (t.review) head.append(" ", el("a", { href: `${this.#state?.console ?? "/console"}/tasks/${encodeURIComponent(t.id)}` }, "Decide in the console"));
    const tried = t.attempts ?? [];
    const smooth = t.state === "SENT" && tried.length === 1;
    if (smooth) head.append(" ", el("small", {}, "at the first attempt"));
    const attempts = tried.map((a) => el(
      "li",
      {},
      el("span", {}, a.action.toLowerCase(), ": "),
      a.outcome ? OUTCOMES[a.outcome] ?? a.outcome : "under way",
      " ",
      el("small", {}, `${clock(Date.parse(a.started_at))}${a.outcome ? ` · ${a.outcome}` : ""}`)
    ));
    return el("div", { class: "task", "data-state": t.review ? "REVIEW" : t.state }, head, smooth ? void 0 : el("ol", { class: "attempts" }, ...attempts));
  }
};
function done(w) {
  const tasks = w.found?.tasks;
  return tasks !== void 0 && tasks.every((t) => DONE.has(t.state) && !t.review);
}

// console/web/src/tally.ts
var FIGURES = [
  { id: "resends", label: "sent again", about: "transmissions under the cmid of before, because no answer had come", of: (d) => d.watch.seen.resends },
  { id: "known", label: "recognised", about: "of these the server said: stored already", of: (d) => d.told.dups },
  { id: "repeats", label: "repeats dropped", about: "events that were pushed once more", of: (d) => d.watch.seen.repeats },
  { id: "wrong", label: "shown twice or out of order", about: "of what the clients told; it has to stay 0", of: (d) => d.told.wrong },
  { id: "gaps", label: "gaps closed", about: "an event was missing, and was fetched", of: (d) => d.watch.seen.gaps },
  { id: "epochs", label: "epoch changes", about: "the log got another history, and the copy was dropped", of: (d) => d.told.epochs },
  { id: "lost", label: "handed back", about: "messages that a restore had lost, told to their sender", of: (d) => d.told.lost }
];
var Tally = class {
  #devices;
  #values = /* @__PURE__ */ new Map();
  constructor(devices) {
    this.#devices = devices;
    const strip = byId("tally");
    for (const f of FIGURES) {
      const value = el("dd", { "data-figure": f.id }, "0");
      this.#values.set(f.id, value);
      strip.append(el("div", { class: f.id === "wrong" ? "figure zero" : "figure" }, el("dt", {}, f.label, el("small", {}, f.about)), value));
    }
  }
  paint() {
    for (const f of FIGURES) {
      const value = this.#values.get(f.id);
      const sum = this.#devices.reduce((n, d) => n + f.of(d), 0);
      if (!value) continue;
      setText(value, String(sum));
      value.classList.toggle("some", sum > 0);
    }
  }
};

// console/web/src/trouble.ts
var MAX_LINES = 20;
var Trouble = class {
  #act;
  #gateways;
  #log;
  #backup = el("button", { type: "button" }, "Back up now");
  #restore = el("button", { type: "button", class: "danger" }, "Restore that backup");
  #taken = el("span", { id: "backup-state" });
  /** act does what is asked for, says when it fails, and looks at the state anew. */
  constructor(act) {
    this.#act = act;
    this.#gateways = new KeyedList(byId("gateways"), (g) => this.#gateway(g));
    this.#log = new KeyedList(byId("happened"), ({ at, text: text2 }) => el("li", {}, el("time", { datetime: at }, clock(Date.parse(at))), ` ${text2}`));
    this.#backup.addEventListener("click", () => act(backup));
    this.#restore.addEventListener("click", () => act(restore));
    byId("backup").append(this.#backup, " ", this.#restore, " ", this.#taken);
  }
  paint(state2) {
    this.#gateways.show(state2.gateways.map((g) => ({ key: g.name, signature: g.state, item: g })));
    const { backup: backup2, busy } = state2;
    this.#backup.disabled = busy !== "";
    this.#restore.disabled = busy !== "" || !backup2;
    const taken = backup2 ? `last backup: ${clock(Date.parse(backup2.at))}` : "no backup yet";
    setText(this.#taken, busy === "backup" ? "backing up …" : busy === "restore" ? "restoring …" : taken);
    const newest2 = state2.log.slice(-MAX_LINES).reverse();
    this.#log.show(newest2.map((l) => ({ key: `${l.at} ${l.text}`, signature: "", item: l })));
  }
  #gateway(g) {
    const button = (what, label) => el("button", { type: "button", "aria-label": `${label} gateway ${g.name}`, onclick: () => this.#act(() => gateway(g.name, what)) }, label);
    const item = el("li", { "data-gateway": g.name, "data-state": g.state }, el("span", { class: "name" }, `gateway ${g.name}`), el("span", { class: `pill ${g.state}` }, g.state));
    if (g.state === "up") item.append(button("kill", "Kill"), button("drain", "Drain"));
    else if (g.state === "draining") item.append(button("kill", "Kill"));
    else item.append(button("start", "Start"));
    return item;
  }
};

// console/web/src/app.ts
var POLL_MS = 1e3;
var Page = class {
  #devices = [];
  #cards = [];
  #names = /* @__PURE__ */ new Map();
  #tally;
  #trouble;
  #notifications;
  #state;
  #painting = false;
  constructor(state2, only) {
    this.#state = state2;
    const people = byId("people");
    people.replaceChildren();
    for (const person of state2.people) {
      this.#names.set(person.user, person.name);
      const mine = person.devices.filter((d) => only === null || d.device === only).map((info) => new Device(info, person, state2.conv, () => this.#paintSoon()));
      if (mine.length === 0) continue;
      const cards = mine.map((d) => new Card(d, this));
      this.#devices.push(...mine);
      this.#cards.push(...cards);
      people.append(el("section", { class: "person", "aria-label": person.name, "data-user": person.user }, el("h2", {}, person.name), el("div", { class: "devices" }, ...cards.map((c) => c.node))));
    }
    document.body.classList.toggle("alone", only !== null);
    byId("whole").hidden = only === null;
    if (this.#devices.length === 0) this.say(`There is no device ${only ?? ""}. There are: ${state2.people.flatMap((p) => p.devices.map((d) => d.device)).join(", ")}.`);
    this.#tally = new Tally(this.#devices);
    this.#trouble = new Trouble((what) => this.attempt(what));
    this.#notifications = new Notifications((what) => this.attempt(what));
    this.#links();
    this.#take(state2);
  }
  /** Opens the clients, and looks at the server's state from now on. */
  async run() {
    for (const d of this.#devices) d.open().catch((err) => this.say(`${d.info.device} cannot be opened: ${text(err)}`));
    setInterval(() => this.#paintSoon(), POLL_MS);
    for (; ; ) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (document.hidden) continue;
      await this.#refresh().catch((err) => this.say(`The server does not answer: ${text(err)}`, true));
      if (!document.body.classList.contains("alone") && this.#state.busy !== "restore") await this.#notifications.poll().catch(() => {
      });
    }
  }
  reads(epoch) {
    const reads = /* @__PURE__ */ new Map();
    for (const { person, read } of this.#devices) {
      if (read.seq > 0 && read.epoch === epoch) reads.set(person.user, Math.max(read.seq, reads.get(person.user) ?? 0));
    }
    return reads;
  }
  name(user) {
    return this.#names.get(user) ?? user;
  }
  change(device, change) {
    this.attempt(async () => {
      await changeLine(device.info.device, change);
      if (change.online === true) device.reconnect();
    });
  }
  attempt(what) {
    this.say("");
    what().then(() => this.#refresh()).catch((err) => this.say(text(err)));
  }
  /** Says something above everything. What is said of the server's silence goes when it speaks. */
  say(message, silence = false) {
    const status = byId("status");
    setText(status, message);
    status.dataset["silence"] = String(silence && message !== "");
  }
  async #refresh() {
    this.#take(await state());
    if (byId("status").dataset["silence"] === "true") this.say("");
  }
  #take(state2) {
    this.#state = state2;
    for (const d of this.#devices) d.renew(state2);
    for (const c of this.#cards) c.line(state2);
    this.#trouble.paint(state2);
    this.#notifications.paint(state2);
    this.#paintSoon();
  }
  #links() {
    const all = this.#state.people.flatMap((p) => p.devices.map((d) => ({ device: d.device, label: `${p.name}’s ${d.kind}` })));
    byId("alone-links").append(...all.flatMap(({ device, label }, i) => [i > 0 ? ", " : "", el("a", { href: `/?device=${encodeURIComponent(device)}` }, label)]));
  }
  /** Paints once, however much happens in this turn. */
  #paintSoon() {
    if (this.#painting) return;
    this.#painting = true;
    setTimeout(() => {
      this.#painting = false;
      for (const c of this.#cards) c.paint();
      this.#tally.paint();
    });
  }
};
function text(err) {
  return err instanceof Error ? err.message : String(err);
}
async function start() {
  const only = new URLSearchParams(location.search).get("device");
  for (; ; ) {
    try {
      return await new Page(await state(), only).run();
    } catch (err) {
      setText(byId("status"), `tidings dev does not answer: ${text(err)}`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}
void start();
