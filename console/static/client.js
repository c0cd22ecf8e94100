// Built from clients/ts/src/index.ts by make web; do not edit.

// clients/ts/src/errors.ts
var TidingsError = class extends Error {
  code;
  retryAfterMs;
  epoch;
  head;
  seq;
  constructor(code, message, details = {}) {
    super(message, "cause" in details ? { cause: details.cause } : void 0);
    this.name = code || "TidingsError";
    this.code = code;
    this.retryAfterMs = details.retryAfterMs ?? 0;
    this.epoch = details.epoch ?? 0;
    this.head = details.head ?? 0;
    this.seq = details.seq ?? 0;
  }
};
var ClosedError = class extends Error {
  name = "ClosedError";
  constructor() {
    super("the client is closed");
  }
};
var DiscardedError = class extends Error {
  name = "DiscardedError";
  constructor() {
    super("the application has discarded it");
  }
};
function codeOf(err) {
  if (err === void 0 || err === null) return "";
  return err instanceof TidingsError ? err.code : "INTERNAL";
}
function invalid(message) {
  return new TidingsError("INVALID_ARGUMENT", message);
}

// clients/ts/src/check.ts
var MAX_BODY = 16 << 10;
var MAX_DATA = 8 << 10;
var MAX_ID = 128;
var MAX_NESTING = 32;
var MAX_EXPONENTS = 4096;
var utf8 = new TextEncoder();
function bytes(text) {
  return utf8.encode(text).length;
}
function checkId(what, id) {
  if (typeof id !== "string" || id === "") throw invalid(`${what} is empty`);
  if (id.length > MAX_ID) throw invalid(`${what} is ${id.length} characters long, at most ${MAX_ID} are allowed`);
  if (!/^[!-~]+$/.test(id) || /[/?#%]/.test(id)) throw invalid(`${what} has a character that an id cannot have`);
}
function checkText(what, text, limit) {
  if (typeof text !== "string") throw invalid(`${what} is no text`);
  const size = bytes(text);
  if (size > limit) throw new TidingsError("TOO_LARGE", `${what} is ${size} bytes long, at most ${limit} are allowed`);
  if (text.includes("\0")) throw invalid(`${what} contains U+0000`);
  if (/[\uD800-\uDFFF]/u.test(text)) throw invalid(`${what} contains half of a surrogate pair`);
}
function dataText(data) {
  const text = JSON.stringify(data);
  if (typeof text !== "string" || !text.startsWith("{")) throw invalid("data is not a JSON object");
  checkText("data", text, MAX_DATA);
  let exponents = 0;
  const walk = (value, depth) => {
    switch (typeof value) {
      case "string":
        return checkText("data", value, MAX_DATA);
      case "number":
        exponents += Number(/e[+-]?(\d+)/.exec(String(value))?.[1] ?? 0);
        if (exponents > MAX_EXPONENTS) throw invalid("data has numbers with too large exponents");
        return;
      case "object":
        if (value === null) return;
        if (depth > MAX_NESTING) throw invalid(`data nests deeper than ${MAX_NESTING} levels`);
        for (const [key, inner] of Object.entries(value)) {
          checkText("data", key, MAX_DATA);
          walk(inner, depth + 1);
        }
    }
  };
  walk(JSON.parse(text), 1);
  return text;
}

// clients/ts/src/config.ts
function settle(c) {
  checkId("device", c.device);
  if (c.install) checkId("install", c.install);
  if (typeof c.token !== "function") throw invalid("there is no source of tokens");
  const webSocket = c.webSocket ?? globalThis.WebSocket;
  if (!webSocket) throw invalid("there is no WebSocket here: Config.webSocket has to name one");
  return {
    url: socketUrl(c.url),
    token: c.token,
    device: c.device,
    name: c.name || "tidings-js",
    handle: c.handle,
    start: c.start ?? (() => ({ epoch: 0, seq: 0 })),
    install: c.install ?? "",
    keep: c.keep || 1e3,
    window: c.window || 1e3,
    maxOutbox: c.maxOutbox || 1e4,
    pipeline: c.pipeline || 1,
    ackEveryMs: c.ackEveryMs || 500,
    requestTimeoutMs: c.requestTimeoutMs || 3e4,
    backoffMinMs: c.backoffMinMs || 500,
    backoffMaxMs: c.backoffMaxMs || 3e4,
    webSocket
  };
}
function socketUrl(text) {
  if (!text.includes("://")) throw invalid(`the URL of the server, "${text}", needs http:// or https:// in front`);
  const url = new URL(text);
  if (url.protocol === "http:") url.protocol = "ws:";
  else if (url.protocol === "https:") url.protocol = "wss:";
  else if (url.protocol !== "ws:" && url.protocol !== "wss:") throw invalid(`the URL of the server has the scheme ${url.protocol}, not ws, wss, http or https`);
  if (url.pathname === "/") url.pathname = "/v1/ws";
  return url.href;
}
function readyUrl(socket) {
  const url = new URL(socket);
  url.protocol = url.protocol === "ws:" ? "http:" : "https:";
  url.pathname = url.pathname.endsWith("/v1/ws") ? url.pathname.replace(/v1\/ws$/, "readyz") : "/readyz";
  url.search = "";
  return url.href;
}

// clients/ts/src/log.ts
var MAX_AHEAD = 512;
var Log = class {
  epoch;
  /** Every seq up to it is in the run, or was, or was known before. */
  cursor;
  /** The greatest seq that is expected; sync until the cursor is there. */
  head;
  run = [];
  #ahead = /* @__PURE__ */ new Map();
  // beyond a hole
  #voided = /* @__PURE__ */ new Set();
  // beyond the cursor, recalled, and not here yet
  constructor(at) {
    this.epoch = at.epoch;
    this.cursor = at.seq;
    this.head = at.seq;
  }
  /** Merges an event. Returns the seqs at or below the cursor of before whose content is gone by it. */
  add(event) {
    const recalled = [];
    const drop = event.seq > this.cursor + 1 && !this.#ahead.has(event.seq) && this.#ahead.size >= MAX_AHEAD;
    const target = event.kind === "recall" ? event.target ?? 0 : 0;
    if (target > 0 && target < event.seq && !(drop && target > this.cursor)) recalled.push(...this.#void(target));
    this.head = Math.max(this.head, event.seq);
    if (event.seq <= this.cursor) {
      if (event.recalled) recalled.push(...this.#void(event.seq));
      return recalled;
    }
    if (this.#voided.has(event.seq)) event = stripped(event);
    const had = this.#ahead.get(event.seq);
    if (drop || had && (had.recalled || !event.recalled)) return recalled;
    this.#ahead.set(event.seq, event);
    this.#advance();
    return recalled;
  }
  /** The event at seq, wherever it is. */
  at(seq) {
    return this.#ahead.get(seq) ?? this.find(seq)?.event;
  }
  /** Tells whether it is known that the event at seq was recalled. */
  recalled(seq) {
    return this.#voided.has(seq) || this.at(seq)?.recalled === true;
  }
  /** Takes the content of the event at seq, now or when it comes. */
  #void(seq) {
    if (seq > this.cursor) {
      this.#voided.add(seq);
      const early = this.#ahead.get(seq);
      if (early) this.#ahead.set(seq, stripped(early));
      return [];
    }
    const piece = this.find(seq);
    if (!piece?.event || piece.event.recalled) return [];
    piece.event = stripped(piece.event);
    return [seq];
  }
  /** Merges the answer to a sync. ok tells whether the page continues the run; one that does not is useless. */
  page(after, events, withheld) {
    const recalled = [];
    if (after > this.cursor) return { recalled, ok: false };
    let e = 0;
    let w = 0;
    while (e < events.length || w < withheld.length) {
      const event = events[e];
      const range = withheld[w];
      if (range && (!event || range.from < event.seq)) {
        w++;
        if (range.from > this.cursor + 1) return { recalled, ok: false };
        this.#withhold(range);
      } else if (event) {
        e++;
        if (event.seq > this.cursor + 1) return { recalled, ok: false };
        recalled.push(...this.add(event));
      }
    }
    return { recalled, ok: true };
  }
  /** Takes a range as known that begins at the cursor or before. */
  #withhold(range) {
    if (range.to <= this.cursor) return;
    for (const seq of this.#ahead.keys()) if (seq <= range.to) this.#ahead.delete(seq);
    for (const seq of this.#voided) if (seq <= range.to) this.#voided.delete(seq);
    this.run.push({ from: this.cursor + 1, to: range.to, why: range.why });
    this.cursor = range.to;
    this.head = Math.max(this.head, range.to);
    this.#advance();
  }
  /** Moves the cursor over what came early. */
  #advance() {
    for (; ; ) {
      const event = this.#ahead.get(this.cursor + 1);
      if (!event) return;
      this.cursor++;
      this.#ahead.delete(event.seq);
      this.#voided.delete(event.seq);
      this.run.push({ from: event.seq, to: event.seq, event });
    }
  }
  /** The number of seqs to ask for: up to the first event beyond the hole, or up to the head. */
  gap() {
    return Math.min(this.head + 1, ...this.#ahead.keys()) - this.cursor - 1;
  }
  /** Sets the head to what an answer to a sync said that came to the end, and to what was heard of since it was asked for. */
  complete(head, heard) {
    this.head = Math.max(head, heard, this.cursor, ...this.#ahead.keys());
  }
  /** The piece that has seq. */
  find(seq) {
    const piece = this.run[this.#index(seq)];
    return piece && piece.from <= seq ? piece : void 0;
  }
  /** The index of the first piece that ends at seq or later. */
  #index(seq) {
    let low = 0;
    let high = this.run.length;
    while (low < high) {
      const middle = low + high >>> 1;
      if (this.run[middle].to >= seq) high = middle;
      else low = middle + 1;
    }
    return low;
  }
  /** At most limit events of the run, beginning at from. */
  events(from, limit) {
    const list = [];
    for (let i = this.#index(from); i < this.run.length && list.length < limit; i++) {
      const event = this.run[i]?.event;
      if (event) list.push(event);
    }
    return list;
  }
  /** Keeps of the pieces up to seq only the last ones. It waits until there is much to gain. */
  forget(seq, keep) {
    const old = this.#index(seq + 1) - keep;
    if (old > keep / 2 + 16) this.run = this.run.slice(old);
  }
};
function stripped(event) {
  const { body: _, data: __, ...rest } = event;
  return { ...rest, recalled: true };
}

// clients/ts/src/conversation.ts
var Conversation = class {
  conv;
  follow = false;
  /** The server does not know us as a member; a joined begins anew. */
  away = false;
  log = new Log({ epoch: 0, seq: 0 });
  /** How far the application has had the log, and what it is having. */
  told = 0;
  telling = 0;
  /** It has to hear of the new history, and of these recalls. */
  dropped = false;
  recalls = [];
  inNews = false;
  /** Nothing is known of this history yet. */
  unsynced = false;
  /** Something spoke of another history. */
  doubt = false;
  /** A sync has no answer. */
  syncing = false;
  /** What was spoken of since it was sent, and what its answer may not know of yet: the greatest seq of each history. */
  heard = /* @__PURE__ */ new Map();
  syncTries = 0;
  syncAt = 0;
  /** Calls of sync that no request was sent for yet, and those that one was sent for. */
  waiters = [];
  served = [];
  /** What is to be sent, in order: recalls first. */
  queue = [];
  /** Of it, how many are under way. */
  flying = 0;
  sendTries = 0;
  sendAt = 0;
  /** Nothing is sent until everything under way is answered. */
  hold = false;
  /** Sent messages that may be gone. */
  suspects = [];
  /** The server knows. */
  acked = 0;
  acking = false;
  ackedAt = -Infinity;
  wantRead = 0;
  read = 0;
  reading = false;
  moved;
  movedInNews = false;
  constructor(conv) {
    this.conv = conv;
    this.moved = { type: "read_moved", conv, epoch: 0, seq: 0, unread: 0, more: false };
  }
  followFrom(at) {
    this.follow = true;
    this.away = false;
    this.unsynced = true;
    this.log = new Log(at);
    this.told = at.seq;
    this.telling = 0;
  }
  /** Notes that seq was spoken of in the history epoch. */
  hear(epoch, seq) {
    this.heard.set(epoch, Math.max(this.heard.get(epoch) ?? 0, seq));
  }
  /** Puts an entry into the queue. A recall, whose time is short, does not wait behind messages. */
  enqueue(item) {
    const at = item.target ? this.queue.findIndex((other) => !other.target) : -1;
    this.queue.splice(at < 0 ? this.queue.length : at, 0, item);
  }
  dequeue(item) {
    const at = this.queue.indexOf(item);
    if (at >= 0) this.queue.splice(at, 1);
  }
  fly(item) {
    item.flying = true;
    this.flying++;
  }
  land(item) {
    if (!item.flying) return;
    item.flying = false;
    this.flying--;
  }
  addSuspects(items) {
    for (const item of items) if (!this.suspects.includes(item)) this.suspects.push(item);
  }
  /** Ends the wait of those who asked for a sync. */
  answer(err) {
    for (const w of this.served.splice(0)) {
      if (err) w.reject(err);
      else w.resolve();
    }
  }
};

// clients/ts/src/signal.ts
var Deferred = class {
  promise;
  resolve;
  reject;
  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.promise.catch(() => {
    });
  }
};
var Signal = class {
  #set = false;
  #wake;
  set() {
    this.#set = true;
    this.#wake?.();
  }
  /** Waits for a signal, at most ms. Tells whether it came. */
  async wait(ms) {
    if (!this.#set) {
      await new Promise((resolve) => {
        const timer = ms === void 0 ? void 0 : setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = void 0;
    }
    const was = this.#set;
    this.#set = false;
    return was;
  }
};
function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, 2 ** 31 - 1));
    signal.addEventListener("abort", end);
  });
}
var now = () => performance.now();

// clients/ts/src/news.ts
var News = class {
  #core;
  #signal = new Signal();
  #list = [];
  #inState = false;
  #closed = false;
  constructor(core) {
    this.#core = core;
  }
  tell(update) {
    this.#push({ update });
  }
  log(v) {
    if (v.inNews || !this.#core.cfg.handle) return;
    v.inNews = true;
    this.#push({ log: v });
  }
  read(v) {
    if (v.movedInNews || !this.#core.cfg.handle) return;
    v.movedInNews = true;
    this.#push({ read: v });
  }
  stateChanged() {
    if (this.#inState || !this.#core.cfg.handle) return;
    this.#inState = true;
    this.#push({ state: true });
  }
  /** Takes the content of a message that was recalled from what is not told yet. */
  empty(conv, cmid) {
    for (const item of this.#list) {
      if (!("update" in item) || item.update.type !== "ended") continue;
      const { entry } = item.update;
      if (entry.conv !== conv || entry.cmid !== cmid) continue;
      const { data: _, ...rest } = entry;
      item.update = { ...item.update, entry: { ...rest, body: "" } };
    }
  }
  close() {
    this.#closed = true;
    this.#signal.set();
  }
  /** Calls the application until the client is closed. */
  async deliver() {
    const { handle } = this.#core.cfg;
    while (handle && !this.#closed) {
      const next = this.#next();
      if (!next) {
        await this.#signal.wait();
        continue;
      }
      try {
        await handle(next.update);
      } catch (err) {
        queueMicrotask(() => {
          throw err;
        });
      }
      next.done?.();
    }
  }
  #push(item) {
    if (!this.#core.cfg.handle) return;
    this.#list.push(item);
    this.#signal.set();
  }
  #next() {
    for (; ; ) {
      const item = this.#list[0];
      if (!item) return void 0;
      if ("log" in item) {
        const next = this.#ofLog(item.log);
        if (next) return next;
        item.log.inNews = false;
      }
      this.#list.shift();
      if ("read" in item) {
        item.read.movedInNews = false;
        return { update: item.read.moved };
      }
      if ("state" in item) {
        this.#inState = false;
        return { update: this.#core.state };
      }
      if ("update" in item) {
        const { update } = item;
        return update.type === "ended" ? { update, done: () => this.#core.box.untold-- } : { update };
      }
    }
  }
  /** The next thing to tell of a log. */
  #ofLog(v) {
    const { log, conv } = v;
    const { epoch } = log;
    if (v.dropped) {
      v.dropped = false;
      return { update: { type: "dropped", conv, epoch } };
    }
    for (let seq = v.recalls.shift(); seq !== void 0; seq = v.recalls.shift()) {
      const event = log.find(seq)?.event;
      if (event) return { update: { type: "recalled", conv, epoch, event } };
    }
    const piece = log.find(v.told + 1);
    if (!piece) return void 0;
    const { to } = piece;
    v.telling = to;
    const done = () => {
      if (v.log !== log || v.told >= to) return;
      v.told = to;
      log.forget(to, this.#core.cfg.keep);
      this.#core.look(v);
    };
    if (piece.event) return { update: { type: "arrived", conv, epoch, event: piece.event }, done };
    return { update: { type: "withheld", conv, epoch, from: Math.max(piece.from, v.told + 1), to, why: piece.why ?? "" }, done };
  }
};

// clients/ts/src/storage.ts
var MAX_SENT = 1e3;
function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// clients/ts/src/outbox.ts
var Item = class {
  conv;
  cmid;
  body;
  data;
  target;
  at;
  order = 0;
  /** Ends when the storage has it, or has failed. */
  stored = new Deferred();
  /** Has the final answer. */
  done = new Deferred();
  result;
  /** A request about it has no answer yet. */
  flying = false;
  /** Some transmission has no answer, or the answer that it is unknown. */
  doubted = false;
  /** A refusal that counts if the server does not have it; outcome is asked first. */
  verdict;
  /** The application decides; why is what it was told. */
  asked;
  /** The application wants it sent at any age. */
  aged = false;
  constructor(e) {
    this.conv = e.conv;
    this.cmid = e.cmid;
    this.body = e.body;
    this.data = e.data;
    this.target = e.target;
    this.at = e.at;
  }
  get key() {
    return keyOf(this.conv, this.cmid);
  }
  /** As it is kept. */
  toStored() {
    const { conv, cmid, body, data, target, at } = this;
    return { conv, cmid, body, at, ...data === void 0 ? {} : { data }, ...target ? { target } : {} };
  }
  /** As the application sees it. */
  toEntry() {
    const { data, ...entry } = this.toStored();
    return data === void 0 ? entry : { ...entry, data: JSON.parse(data) };
  }
  /** Lets it be sent again by the application's will. */
  resume() {
    this.asked = void 0;
    this.verdict = void 0;
    this.aged = true;
  }
};
function keyOf(conv, cmid) {
  return `${conv} ${cmid}`;
}
var Outbox = class {
  waiting = /* @__PURE__ */ new Map();
  // in the order in which they were queued
  sent = /* @__PURE__ */ new Map();
  // oldest first
  /** Ended, and the application does not know yet. */
  untold = 0;
  #orders = 0;
  /** Takes an entry in. fresh is false when it is there already, waiting or sent. */
  add(e, limit) {
    const key = keyOf(e.conv, e.cmid);
    const had = this.waiting.get(key) ?? this.sent.get(key);
    if (had) {
      const same = had.body === e.body && had.data === e.data && had.target?.seq === e.target?.seq && had.target?.epoch === e.target?.epoch;
      if (!same) throw new TidingsError("IDEMPOTENCY_MISMATCH", `something else has the cmid ${e.cmid}`);
      return { item: had, fresh: false };
    }
    if (this.waiting.size + this.untold >= limit) throw new TidingsError("RATE_LIMITED", `the outbox is full: ${limit} entries wait`);
    const item = new Item(e);
    this.put(item);
    return { item, fresh: true };
  }
  put(item) {
    item.order = ++this.#orders;
    this.waiting.set(item.key, item);
  }
  waits(item) {
    return this.waiting.get(item.key) === item;
  }
  forget(item) {
    if (this.waits(item)) this.waiting.delete(item.key);
  }
  /** Remembers a message that was sent. */
  keep(item) {
    this.forget(item);
    this.sent.delete(item.key);
    this.sent.set(item.key, item);
    for (const old of this.sent.values()) {
      if (this.sent.size <= MAX_SENT) break;
      this.unkeep(old);
    }
  }
  remembers(item) {
    return this.sent.get(item.key) === item;
  }
  unkeep(item) {
    if (this.remembers(item)) this.sent.delete(item.key);
  }
  /** The remembered messages of a conversation which were stored in another history than epoch. */
  sentTo(conv, epoch) {
    return [...this.sent.values()].filter((item) => item.conv === conv && item.result?.sent?.epoch !== epoch);
  }
};

// clients/ts/src/wire.ts
var SUBPROTOCOL = "tidings.v1";
var LIMITS = { frame: 64 << 10, body: 16 << 10, data: 8 << 10, inflight: 256, page: 500, resend_ms: 0 };
function encode(request, rid) {
  const { t, ...rest } = request;
  if (t !== "send") return JSON.stringify({ t, rid, ...rest });
  const { data, ...message } = rest;
  const text = JSON.stringify({ t, rid, ...message });
  return data === void 0 ? text : `${text.slice(0, -1)},"data":${data}}`;
}
var PONG = '{"t":"pong"}';
var LONGEST_RID = "9007199254740991";
function checkFits(message, limit) {
  const { conv, cmid, body, data } = message;
  const size = bytes(encode({ t: "send", conv, cmid, body, ...data === void 0 ? {} : { data } }, LONGEST_RID));
  if (size <= limit) return void 0;
  return new TidingsError("TOO_LARGE", `the message takes ${size} bytes in a frame, at most ${limit} are allowed`);
}
var EVENT = {
  always: { conv: "", seq: 0, kind: "", sender: "", at: 0 },
  perhaps: { mid: "", sdev: "", cmid: "", body: "", recalled: false, target: 0, actor: "" }
};
var LISTED = {
  always: { conv: "", epoch: 0, head: 0, min_seq: 0, delivered: 0, read: 0, unread: 0, unread_more: false, at: 0 },
  perhaps: { last: EVENT, left: false }
};
var WITHHELD = { always: { from: 0, to: 0, why: "" }, perhaps: {} };
var LIMITED = { always: {}, perhaps: { ...LIMITS } };
var FRAME = {
  always: {
    t: "",
    rid: "",
    conv: "",
    cmid: "",
    epoch: 0,
    seq: 0,
    mid: "",
    dup: false,
    at: 0,
    head: 0,
    read: 0,
    unread: 0,
    unread_more: false,
    stored: "",
    min_seq: 0,
    after: 0,
    events: [EVENT],
    withheld: [WITHHELD],
    trimmed: false,
    more: false,
    list: [LISTED],
    code: "",
    message: "",
    retry: "",
    retry_after_ms: 0,
    reconnect_after_ms: 0,
    user: "",
    device: "",
    connection: "",
    now: 0,
    ping_ms: 0,
    limits: LIMITED,
    features: [""]
  },
  perhaps: { event: EVENT }
};
var KNOWN = /* @__PURE__ */ new Set([
  "error",
  "welcome",
  "sent",
  "recalled",
  "events",
  "fetched",
  "acked",
  "read",
  "conversations",
  "outcome",
  "refreshed",
  "event",
  "lag",
  "cursor",
  "joined",
  "left",
  "draining",
  "ping"
]);
function decode(text) {
  const raw = JSON.parse(text);
  if (!isObject(raw)) throw new Error("read a frame: it is no object");
  const t = raw["t"];
  if (typeof t !== "string" || t === "") throw new Error("read a frame: it has no type");
  const known = KNOWN.has(t) ? raw : { t, rid: typeof raw["rid"] === "string" ? raw["rid"] : "" };
  return shaped(FRAME, known, `a frame of the type ${t}`);
}
function refusal(f) {
  if (f.t !== "error") return void 0;
  return new TidingsError(f.code, f.message, { retryAfterMs: f.retry_after_ms, epoch: f.epoch, head: f.head, seq: f.seq });
}
function shaped(shape, raw, where) {
  const made = {};
  for (const [key, kind] of Object.entries(shape.always)) made[key] = empty(kind);
  for (const [key, value] of Object.entries(raw)) {
    if (value === null) continue;
    const kind = shape.always[key] ?? shape.perhaps[key];
    made[key] = kind === void 0 ? value : like(kind, value, `${key} of ${where}`);
  }
  return made;
}
function empty(kind) {
  return Array.isArray(kind) ? [] : isObject(kind) ? {} : kind;
}
function like(kind, value, where) {
  if (Array.isArray(kind) && Array.isArray(value)) return value.map((item) => like(kind[0], item, where));
  if (isObject(kind) && isObject(value)) return shaped(kind, value, where);
  if (typeof kind === "number" && Number.isSafeInteger(value)) return value;
  if (typeof kind !== "number" && typeof kind !== "object" && typeof kind === typeof value) return value;
  throw new Error(`read ${where}: ${Array.isArray(kind) ? "a list" : typeof kind === "number" ? "an integer below 2^53" : `a ${typeof kind}`} is expected`);
}
function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// clients/ts/src/recalls.ts
var FINAL = /* @__PURE__ */ new Set([
  "NOT_SENDER",
  "NOT_FOUND",
  "ALREADY_RECALLED",
  "RECALL_WINDOW_EXPIRED",
  "IDEMPOTENCY_MISMATCH",
  "INVALID_ARGUMENT",
  "NOT_MEMBER",
  "EPOCH_CHANGED"
]);
function recallAnswered(core, v, item, f) {
  v.land(item);
  core.look(v);
  if (!core.box.waits(item) || !item.target) return;
  let err = refusal(f);
  if (f.code === "NOT_FOUND" && item.doubted) err = void 0;
  if (f.stored === "unknown") item.doubted = true;
  if (!err) {
    v.sendTries = 0;
    finish(core, v, item, { sent: { seq: f.seq, mid: "", epoch: f.epoch, at: 0, dup: f.dup || f.code !== "" } });
    emptyAt(core, item.conv, item.target);
    if (f.seq > 0) core.expect(v, f.epoch, f.seq);
  } else if (FINAL.has(f.code)) {
    finish(core, v, item, { error: err });
    if (f.code === "ALREADY_RECALLED") emptyAt(core, item.conv, item.target);
    if (f.code === "EPOCH_CHANGED") core.expect(v, f.epoch, 0);
  } else if (f.retry === "no") {
    askApplication(core, item, err);
  } else {
    holdBack(core, v, f);
  }
}
function endRecalls(core, v, current) {
  for (const item of [...v.queue]) {
    if (!item.target || item.target.epoch === current && current !== v.log.epoch) continue;
    finish(core, v, item, { error: new TidingsError("EPOCH_CHANGED", "The conversation's log has another history.", { epoch: current }) });
  }
}
function takeBack(core, v, epoch, event) {
  const recall = event.kind === "recall";
  if (!recall && !event.recalled) return;
  const seq = recall ? event.target ?? 0 : event.seq;
  emptyAt(core, v.conv, { epoch, seq });
  if (epoch !== v.log.epoch) return;
  const gone = recall ? v.log.at(seq) : event;
  if (!gone?.cmid || gone.sender !== core.user) return;
  const key = `${v.conv} ${gone.cmid}`;
  const own = core.box.waiting.get(key);
  if (own && !own.target) {
    own.body = "";
    own.data = void 0;
    finish(core, v, own, { sent: { seq: gone.seq, mid: gone.mid ?? "", epoch, at: gone.at, dup: true } });
  }
  const sent = core.box.sent.get(key);
  if (sent) empty2(core, sent);
}
function emptyAt(core, conv, at) {
  for (const item of core.box.sent.values()) {
    const sent = item.result?.sent;
    if (item.conv === conv && sent?.epoch === at.epoch && sent.seq === at.seq) return empty2(core, item);
  }
}
function trimmed(core, conv, epoch, minSeq) {
  for (const item of core.box.sent.values()) {
    const sent = item.result?.sent;
    if (item.conv === conv && sent?.epoch === epoch && sent.seq < minSeq) empty2(core, item);
  }
}
function empty2(core, item) {
  core.box.forget(item);
  core.box.unkeep(item);
  item.body = "";
  item.data = void 0;
  core.news.empty(item.conv, item.cmid);
  core.note({ op: "erase", conv: item.conv, cmid: item.cmid });
}

// clients/ts/src/sends.ts
var FINAL2 = /* @__PURE__ */ new Set(["ORIGINAL_EXPIRED", "IDEMPOTENCY_MISMATCH", "INVALID_ARGUMENT", "TOO_LARGE", "NOT_MEMBER"]);
function sendAnswered(core, v, item, f) {
  v.land(item);
  core.look(v);
  if (!core.box.waits(item)) return;
  const err = refusal(f);
  if (!err) {
    v.sendTries = 0;
    return finish(core, v, item, { sent: { seq: f.seq, mid: f.mid, epoch: f.epoch, at: f.at, dup: f.dup } });
  }
  if (f.stored === "unknown") item.doubted = true;
  if (f.code === "ORIGINAL_EXPIRED") finish(core, v, item, { error: err });
  else if (FINAL2.has(f.code) || f.retry === "no") refuse(core, v, item, err, item.doubted && f.stored === "unchanged");
  else holdBack(core, v, f);
}
function holdBack(core, v, f) {
  v.hold = true;
  v.sendAt = core.retryAt(f, v.sendTries);
  v.sendTries++;
}
function refuse(core, v, item, err, ask) {
  if (ask) item.verdict = err;
  else if (FINAL2.has(codeOf(err))) finish(core, v, item, { error: err });
  else askApplication(core, item, err);
}
function outcomeAnswered(core, v, item, f) {
  v.land(item);
  core.look(v);
  const waits = core.box.waits(item);
  if (!waits && !core.box.remembers(item)) return;
  const answer = f.t === "outcome" ? f.stored : f.code === "NOT_MEMBER" ? "no" : "";
  if (answer === "yes" && waits) {
    finish(core, v, item, { sent: { seq: f.seq, mid: "", epoch: f.epoch, at: 0, dup: true } });
  } else if (answer === "purged" && waits) {
    finish(core, v, item, { error: new TidingsError("ORIGINAL_EXPIRED", "The message under this key was stored and has been purged since.", { seq: f.seq }) });
  } else if (answer === "yes") {
    stands(core, item, f.seq, f.epoch);
  } else if (answer === "purged") {
    empty2(core, item);
  } else if (answer === "no" && waits) {
    const { verdict } = item;
    item.verdict = void 0;
    item.doubted = false;
    if (verdict) refuse(core, v, item, verdict, false);
  } else if (answer === "no") {
    core.box.unkeep(item);
    core.note({ op: "end", conv: item.conv, cmid: item.cmid });
    if (item.result?.sent) core.tell({ type: "lost", entry: item.toEntry(), sent: item.result.sent });
  } else {
    v.sendAt = core.retryAt(f, v.sendTries);
    v.sendTries++;
    if (!waits) v.suspects.push(item);
  }
}
function finish(core, v, item, result2) {
  const { sent } = result2;
  v.dequeue(item);
  core.settle(item, result2);
  if (item.target || !sent) {
    core.box.forget(item);
    core.note({ op: "end", conv: item.conv, cmid: item.cmid });
  } else if (sent.epoch === v.log.epoch && v.log.recalled(sent.seq)) {
    empty2(core, item);
  } else {
    core.box.keep(item);
    core.note({ op: "sent", entry: item.toStored(), sent });
    expectSent(core, v, item, sent.epoch, sent.seq);
  }
  if (core.cfg.handle) core.box.untold++;
  core.tell({ type: "ended", entry: item.toEntry(), ...result2 });
}
function expectSent(core, v, item, epoch, seq) {
  if (v.follow && v.log.epoch !== 0 && epoch !== v.log.epoch) v.addSuspects([item]);
  core.expect(v, epoch, seq);
}
function stands(core, item, seq, epoch) {
  const had = item.result?.sent;
  if (!had) return;
  const sent = { ...had, seq, epoch };
  item.result = { sent };
  core.note({ op: "sent", entry: item.toStored(), sent });
}
function askApplication(core, item, err) {
  item.asked = { why: err };
  core.tell({ type: "asked", entry: item.toEntry(), ...err ? { error: err } : {} });
}

// clients/ts/src/outgoing.ts
var DRAIN_GRACE_MS = 1e4;
function pump(core) {
  const s = core.link;
  if (!s?.opened || s.ended) return;
  clearTimeout(s.timer);
  const o = new Outgoing(core, s);
  o.collect();
  if (!s.ended) s.timer = setTimeout(() => pump(core), Math.max(o.next - now(), 1));
}
var Outgoing = class {
  #core;
  #s;
  #now = now();
  /** When to look again. */
  next = this.#now + 6e4;
  constructor(core, s) {
    this.#core = core;
    this.#s = s;
  }
  collect() {
    const core = this.#core;
    const s = this.#s;
    if (s.pong) {
      s.pong = false;
      s.write(PONG);
    }
    this.#patience();
    if (s.ended || !s.greeted) return;
    if (this.#now < s.paused) return this.#at(s.paused);
    this.#list();
    while (core.asks.length > 0 && this.#room()) {
      const ask = core.asks.shift();
      if (ask?.live()) this.#send((rid) => ask.encode(rid), { kind: "ask", ask });
    }
    for (const v of [...core.due]) {
      if (!this.#room()) break;
      core.due.delete(v);
      if (this.#conversation(v)) core.due.add(v);
    }
  }
  /** Gives the connection up when the server is silent, or a request has waited too long for its answer. */
  #patience() {
    const s = this.#s;
    const silent = s.heardAt + s.patience;
    if (this.#now >= silent) return s.giveUp(new Error("the server says nothing any more"));
    this.#at(silent);
    const stops = s.drainAt + DRAIN_GRACE_MS;
    if (this.#now >= stops) return s.giveUp(new Error("the server stops, and has not closed the connection"));
    this.#at(stops);
    const [oldest] = s.requests.values();
    if (!oldest) return;
    const late = oldest.at + this.#core.cfg.requestTimeoutMs;
    if (this.#now >= late) return s.giveUp(new Error(`the server has not answered a request of the type ${oldest.kind} in time`));
    this.#at(late);
  }
  #at(t) {
    this.next = Math.min(this.next, t);
  }
  /** One more request may be sent. When not, an answer makes room. */
  #room() {
    return this.#s.requests.size < Math.max(this.#core.limits.inflight, 1);
  }
  /** Something has to wait, until t or for room. */
  #wait(t) {
    if (this.#now < t) {
      this.#at(t);
      return true;
    }
    return !this.#room();
  }
  #send(write, what) {
    const rid = this.#s.nextRid();
    this.#s.requests.set(rid, { kind: what.kind, at: this.#now, what });
    this.#at(this.#now + this.#core.cfg.requestTimeoutMs);
    this.#s.write(write(rid));
  }
  #request(request, what) {
    this.#send((rid) => encode(request, rid), what);
  }
  /** Asks for the conversations, a page at a time. */
  #list() {
    const s = this.#s;
    if (!s.listing || this.#wait(s.listAt)) return;
    s.listing = false;
    this.#request({ t: "conversations", ...s.listFrom ? { after: s.listFrom } : {}, limit: this.#core.limits.page }, { kind: "conversations" });
  }
  /** Sends what one conversation has to say. Tells whether it has to be looked at again without being woken. */
  #conversation(v) {
    let again = false;
    for (const part of [this.#sync, this.#queue, this.#suspects, this.#ack, this.#read]) again = part.call(this, v) || again;
    return again;
  }
  #sync(v) {
    const core = this.#core;
    if (!core.wantsSync(v)) return false;
    if (this.#wait(v.syncAt)) return true;
    let limit = core.limits.page;
    const gap = v.log.gap();
    if (!v.unsynced && !v.doubt && gap > 0) limit = Math.min(limit, gap);
    if (core.full(v)) limit = 1;
    v.syncing = true;
    v.heard.clear();
    v.served.push(...v.waiters.splice(0));
    const { epoch, cursor } = v.log;
    this.#request({ t: "sync", conv: v.conv, epoch, after: cursor, limit }, { kind: "sync", v, log: v.log, seq: 0 });
    return false;
  }
  /** Sends what waits in its order, as much at once as the configuration allows. */
  #queue(v) {
    const core = this.#core;
    v.hold &&= v.flying > 0;
    if (v.hold) return false;
    for (const item of [...v.queue]) {
      if (v.flying >= core.cfg.pipeline) return false;
      if (item.flying || item.asked) continue;
      if (this.#wait(v.sendAt)) return true;
      const { conv, cmid, target } = item;
      const old = core.limits.resend_ms;
      if (item.verdict) {
        v.fly(item);
        this.#request({ t: "outcome", conv, cmid }, { kind: "outcome", v, item });
      } else if (target) {
        v.fly(item);
        this.#request({ t: "recall", conv, epoch: target.epoch, target: target.seq, cmid }, { kind: "recall", v, item });
      } else if (old > 0 && !item.aged && Date.now() - item.at > old) {
        askApplication(core, item);
      } else {
        const message = { conv, cmid, body: item.body, ...item.data === void 0 ? {} : { data: item.data } };
        const err = checkFits(message, core.limits.frame);
        if (err) {
          refuse(core, v, item, err, item.doubted);
          return this.#queue(v);
        }
        v.fly(item);
        this.#request({ t: "send", ...message }, { kind: "send", v, item });
      }
    }
    return false;
  }
  /** Asks what became of messages that another history had, once this history is known. */
  #suspects(v) {
    if (v.follow && (v.unsynced || v.log.cursor < v.log.head)) return false;
    while (v.suspects.length > 0) {
      if (this.#wait(v.sendAt)) return true;
      const item = v.suspects.shift();
      if (item) this.#request({ t: "outcome", conv: item.conv, cmid: item.cmid }, { kind: "outcome", v, item });
    }
    return false;
  }
  #ack(v) {
    if (!this.#core.wantsAck(v)) return false;
    if (this.#wait(v.ackedAt + this.#core.cfg.ackEveryMs)) return true;
    v.acking = true;
    v.ackedAt = this.#now;
    this.#request({ t: "ack", conv: v.conv, epoch: v.log.epoch, seq: v.told }, { kind: "ack", v, log: v.log, seq: v.told });
    return false;
  }
  #read(v) {
    if (v.reading || v.wantRead <= v.read || v.doubt || v.follow && v.unsynced) return false;
    if (this.#wait(v.syncAt)) return true;
    v.reading = true;
    this.#request({ t: "read", conv: v.conv, epoch: v.log.epoch, seq: v.wantRead }, { kind: "read", v, log: v.log, seq: v.wantRead });
    return false;
  }
};

// clients/ts/src/core.ts
var MAX_ASKS = 1e3;
var Core = class {
  cfg;
  news;
  box = new Outbox();
  convs = /* @__PURE__ */ new Map();
  /** Those that may have something to send. */
  due = /* @__PURE__ */ new Set();
  /** Requests that wait to be sent. */
  asks = [];
  /** For the run loop: connect now. */
  again = new Signal();
  observers = [];
  storage;
  install;
  /** As the server or the outbox says; empty before the first welcome. */
  user = "";
  /** Of the newest welcome. */
  limits = LIMITS;
  state = { type: "connection", state: "offline" };
  /** The connection that is being made or stands, and the same once the welcome has come. */
  link;
  session;
  /** Another tab has the socket and the outbox. */
  relayed = false;
  closed = false;
  #open = /* @__PURE__ */ new Set();
  // asks without an answer
  #woken = false;
  constructor(cfg) {
    this.cfg = cfg;
    this.install = cfg.install;
    this.news = new News(this);
  }
  // --- the outbox
  /** Takes in what a storage had. Nobody knows which of it has been transmitted. */
  load(storage, stored) {
    this.storage = storage;
    this.install = stored.install;
    this.user = stored.user || this.user;
    if (this.user !== stored.user) this.note({ op: "user", user: this.user });
    for (const entry of stored.waiting) {
      const item = new Item(entry);
      item.doubted = true;
      item.stored.resolve();
      this.box.put(item);
      const v = this.conversation(item.conv);
      v.enqueue(item);
      this.look(v);
    }
    for (const { entry, sent } of stored.sent) {
      const item = new Item(entry);
      item.stored.resolve();
      item.result = { sent };
      this.box.keep(item);
    }
  }
  /** Puts an entry into the outbox. When it returns, the entry is safe there. */
  async enter(entry) {
    if (this.closed) throw new ClosedError();
    const { item, fresh } = this.box.add(entry, this.cfg.maxOutbox);
    if (!fresh) {
      await item.stored.promise;
      return item;
    }
    try {
      await this.storage?.write({ op: "queue", entry });
    } catch (cause) {
      const err = new TidingsError("OUTCOME_UNKNOWN", `put an entry into the outbox: ${String(cause)}`, { cause });
      item.stored.reject(err);
      this.box.forget(item);
      throw err;
    }
    item.stored.resolve();
    if (this.box.waits(item)) {
      const v = this.conversation(item.conv);
      v.enqueue(item);
      this.look(v);
    }
    return item;
  }
  /** Remembers a change that need not be on the disk at once. A storage that fails refuses the next entry. */
  note(change) {
    this.storage?.write(change).catch(() => {
    });
  }
  // --- conversations
  /** What is known of a conversation, which may be nothing. */
  conversation(conv) {
    let v = this.convs.get(conv);
    if (!v) {
      v = new Conversation(conv);
      this.convs.set(conv, v);
      this.begin(v);
    }
    return v;
  }
  /** Asks the application where it follows a conversation from. */
  begin(v) {
    const at = this.cfg.start(v.conv);
    v.followFrom(at ?? { epoch: 0, seq: 0 });
    v.follow = at !== void 0;
  }
  /** Puts a conversation among those that may have something to send. */
  look(v) {
    this.due.add(v);
    this.wake();
  }
  /** Lets what is due be sent once this turn of the event loop has done its work. */
  wake() {
    if (this.#woken) return;
    this.#woken = true;
    queueMicrotask(() => {
      this.#woken = false;
      pump(this);
    });
  }
  /** Notes that a conversation has reached head in the history epoch. */
  expect(v, epoch, head) {
    if (!v.follow) return this.suspect(v, epoch);
    v.hear(epoch, head);
    if (v.log.epoch === epoch) v.log.head = Math.max(v.log.head, head);
    else if (v.log.epoch !== 0) v.doubt = true;
    this.look(v);
  }
  /** So much waits for the application that no more is taken. */
  full(v) {
    return v.log.cursor - v.told >= this.cfg.window;
  }
  /** A sync would bring something. */
  wantsSync(v) {
    if (!v.follow || v.syncing) return false;
    return v.doubt || !this.full(v) && (v.unsynced || v.log.cursor < v.log.head || v.waiters.length + v.served.length > 0);
  }
  /** The server has to hear how far the log is stored. */
  wantsAck(v) {
    return this.cfg.ackEveryMs >= 0 && !this.relayed && v.follow && !v.acking && !v.unsynced && !v.doubt && v.told > v.acked;
  }
  /** Forgets a history and expects another one. */
  reset(v, epoch) {
    v.addSuspects([...this.box.sent.values()].filter((item) => item.conv === v.conv));
    endRecalls(this, v, epoch);
    v.log = new Log({ epoch, seq: 0 });
    v.told = v.telling = v.acked = 0;
    v.recalls = [];
    v.unsynced = v.dropped = true;
    v.doubt = false;
    v.syncTries = 0;
    v.read = v.wantRead = 0;
    this.news.log(v);
    this.look(v);
  }
  /** Looks for messages that were sent in another history than epoch. */
  suspect(v, epoch) {
    v.addSuspects(this.box.sentTo(v.conv, epoch));
    if (v.suspects.length > 0) this.look(v);
  }
  /** Follows up on what a push or a page has changed. */
  merged(v, recalled) {
    for (const seq of recalled) if (seq <= Math.max(v.told, v.telling) && !v.recalls.includes(seq)) v.recalls.push(seq);
    if (!this.cfg.handle) {
      v.told = v.log.cursor;
      v.recalls = [];
      v.dropped = false;
      v.log.forget(v.told, this.cfg.keep);
    } else if (v.told < v.log.cursor || v.recalls.length > 0) {
      this.news.log(v);
    }
    if (this.wantsSync(v) || this.wantsAck(v)) this.look(v);
  }
  // --- requests of the application
  /** Asks the server. It waits for a connection, and asks again after one that was lost. */
  ask(request, signal) {
    return new Promise((resolve, reject) => {
      let waits = true;
      const end = (how) => {
        waits = false;
        this.#open.delete(fail);
        signal?.removeEventListener("abort", abort);
        how();
      };
      const fail = (err) => end(() => reject(err));
      const abort = () => fail(unavailable(`ask the server (${request.t})`, signal));
      if (this.closed) return reject(new ClosedError());
      if (signal?.aborted) return abort();
      this.#open.add(fail);
      signal?.addEventListener("abort", abort);
      const done = (f) => {
        const err = refusal(f);
        if (err) fail(err);
        else end(() => resolve(f));
      };
      if (!this.queueAsk({ encode: (rid) => encode(request, rid), live: () => waits, done })) {
        fail(new TidingsError("RATE_LIMITED", `${MAX_ASKS} requests wait for the connection`));
      }
    });
  }
  /** Lets a request wait for its turn; false when too many do. */
  queueAsk(ask) {
    this.asks = this.asks.filter((other) => other.live());
    if (this.asks.length >= MAX_ASKS) return false;
    this.asks.push(ask);
    this.wake();
    return true;
  }
  // --- telling
  /** Tells the application, here and in other tabs. */
  tell(update) {
    this.news.tell(update);
    for (const o of this.observers) o.told(update);
  }
  setState(state) {
    this.state = { type: "connection", ...state };
    this.news.stateChanged();
    for (const o of this.observers) o.told(this.state);
  }
  /** Tells those who wait for the final answer to an entry. */
  settle(item, result2) {
    item.result = result2;
    item.done.resolve(result2);
    for (const o of this.observers) o.settled(item.key, result2);
  }
  // --- time
  /**
   * Milliseconds before try number n (from 0) is repeated: anything up to a bound that doubles ("full jitter",
   * https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
   */
  pause(n) {
    return Math.random() * Math.min(this.cfg.backoffMinMs * 2 ** Math.min(n, 30), this.cfg.backoffMaxMs);
  }
  /** When a refused request may be repeated: the server's word comes first. */
  retryAt(f, tries) {
    return now() + (f.retry_after_ms > 0 ? f.retry_after_ms : this.pause(tries));
  }
  /** Ends the connection and everything that waits. */
  close() {
    this.closed = true;
    this.again.set();
    this.link?.finish({ code: 0, farewell: true });
    this.news.close();
    const err = new ClosedError();
    for (const fail of [...this.#open]) fail(err);
    for (const item of this.box.waiting.values()) item.done.resolve({ error: err });
    for (const v of this.convs.values()) for (const w of [...v.waiters.splice(0), ...v.served.splice(0)]) w.reject(err);
  }
};
function unavailable(what, signal) {
  return new TidingsError("UNAVAILABLE", `${what}: given up`, { cause: signal?.reason });
}

// clients/ts/src/desk.ts
var OwnDesk = class {
  #core;
  constructor(core) {
    this.#core = core;
  }
  async enter(entry) {
    return (await this.#core.enter(entry)).result;
  }
  async waiting() {
    return [...this.#core.box.waiting.values()].map((item) => ({ ...item.toEntry(), inDoubt: item.doubted || item.flying }));
  }
  async resend(conv, cmid) {
    const item = this.#core.box.waiting.get(`${conv} ${cmid}`);
    if (!item?.asked) return;
    item.resume();
    this.#core.look(this.#core.conversation(conv));
  }
  async discard(conv, cmid) {
    const item = this.#core.box.waiting.get(`${conv} ${cmid}`);
    if (!item) return;
    this.#core.conversation(conv).dequeue(item);
    this.#core.box.forget(item);
    this.#core.settle(item, { error: new DiscardedError() });
    await this.#core.storage?.write({ op: "end", conv, cmid });
  }
  async flush() {
    for (; ; ) {
      if (this.#core.closed) throw new ClosedError();
      const open = [...this.#core.box.waiting.values()].find((item) => !item.asked);
      if (!open) return;
      await open.done.promise;
    }
  }
  async reconnect() {
    this.#core.again.set();
  }
};

// clients/ts/src/indexeddb.ts
var ENTRIES = "entries";
var OWNER = "owner";
var IndexedDBStorage = class {
  #name;
  #db;
  #owner = { device: "", install: "", user: "" };
  #order = 0;
  #sent = /* @__PURE__ */ new Map();
  // keys of what was sent, oldest first
  #last = Promise.resolve();
  constructor(name) {
    this.#name = name;
  }
  async open(device, install) {
    const db = await new Promise((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(ENTRIES, { keyPath: ["conv", "cmid"] });
        request.result.createObjectStore(OWNER);
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    db.onversionchange = () => db.close();
    this.#db = db;
    const t = db.transaction([ENTRIES, OWNER], "readonly");
    const [owner, kept] = await Promise.all([
      result(t.objectStore(OWNER).get(OWNER)),
      result(t.objectStore(ENTRIES).getAll())
    ]);
    try {
      this.#owner = owned(owner, device, install, this.#name);
    } catch (err) {
      db.close();
      throw err;
    }
    if (!owner) await this.#transact("strict", [OWNER], (stores) => stores.objectStore(OWNER).put(this.#owner, OWNER));
    kept.sort((a, b) => a.order - b.order);
    this.#order = kept.at(-1)?.order ?? 0;
    const stored = { install: this.#owner.install, user: this.#owner.user, waiting: [], sent: [] };
    for (const { conv, cmid, entry, sent } of kept) {
      if (!sent) {
        stored.waiting.push(entry);
        continue;
      }
      stored.sent.push({ entry, sent });
      this.#sent.set(keyOf(conv, cmid), [conv, cmid]);
    }
    return stored;
  }
  write(change) {
    const done = this.#apply(change);
    const before = this.#last;
    this.#last = done.catch(() => {
    });
    return before.then(() => done);
  }
  async close() {
    await this.#last;
    this.#db?.close();
  }
  #apply(change) {
    switch (change.op) {
      case "user":
        this.#owner.user = change.user;
        return this.#transact("relaxed", [OWNER], (t) => t.objectStore(OWNER).put(this.#owner, OWNER));
      case "queue":
      case "sent": {
        const { entry } = change;
        const { conv, cmid } = entry;
        const kept = { conv, cmid, order: ++this.#order, entry, ...change.op === "sent" ? { sent: change.sent } : {} };
        const old = change.op === "sent" ? this.#remember(conv, cmid) : void 0;
        return this.#transact(change.op === "queue" ? "strict" : "relaxed", [ENTRIES], (t) => {
          t.objectStore(ENTRIES).put(kept);
          if (old) t.objectStore(ENTRIES).delete(old);
        });
      }
      case "end":
      case "erase":
        this.#sent.delete(keyOf(change.conv, change.cmid));
        return this.#transact("relaxed", [ENTRIES], (t) => t.objectStore(ENTRIES).delete([change.conv, change.cmid]));
    }
  }
  /** Notes the newest sent message, and returns the key of the one that is remembered no longer. */
  #remember(conv, cmid) {
    this.#sent.delete(keyOf(conv, cmid));
    this.#sent.set(keyOf(conv, cmid), [conv, cmid]);
    const [first] = this.#sent;
    if (this.#sent.size <= MAX_SENT || !first) return void 0;
    this.#sent.delete(first[0]);
    return first[1];
  }
  #transact(durability, stores, act) {
    return new Promise((resolve, reject) => {
      if (!this.#db) throw new Error("the outbox is not open");
      const t = this.#db.transaction(stores, "readwrite", { durability });
      t.oncomplete = () => resolve();
      t.onabort = () => reject(t.error ?? new Error("the outbox takes nothing more"));
      act(t);
    });
  }
};
function owned(had, device, install, name) {
  if (!had) return { device, install: install || randomId(), user: "" };
  if (had.device !== device) throw invalid(`the outbox ${name} belongs to the device ${had.device}, not to ${device}`);
  if (install && had.install !== install) throw invalid(`the outbox ${name} belongs to the installation ${had.install}, not to ${install}`);
  return had;
}
function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// clients/ts/src/replies.ts
function take(core, s, text) {
  const f = decode(text);
  if (f.rid !== "") {
    answered(core, s, f, text);
    core.wake();
  } else if (s.greeted) {
    pushed(core, s, f, text);
  }
}
function pushed(core, s, f, text) {
  switch (f.t) {
    case "ping":
      s.pong = true;
      return core.wake();
    case "draining":
      s.drainAt = now() + f.reconnect_after_ms;
      return core.wake();
    case "event":
      if (f.event) arrived(core, core.conversation(f.event.conv), f.epoch, f.event);
      break;
    case "lag":
    case "left":
      core.expect(core.conversation(f.conv), f.epoch, Math.max(f.head, f.seq));
      break;
    case "joined": {
      const v = core.conversation(f.conv);
      if (v.away) core.begin(v);
      core.expect(v, f.epoch, f.seq);
      break;
    }
    case "cursor":
      readMoved(core, core.conversation(f.conv), { type: "read_moved", conv: f.conv, epoch: f.epoch, seq: f.read, unread: f.unread, more: f.unread_more });
      break;
    default:
      return;
  }
  for (const o of core.observers) o.pushed(text);
}
function arrived(core, v, epoch, event) {
  if (!v.follow || v.log.epoch !== epoch || v.log.cursor + 1 !== event.seq && v.unsynced || core.full(v)) {
    core.expect(v, epoch, event.seq);
  } else {
    v.hear(epoch, event.seq);
    core.merged(v, v.log.add(event));
  }
  takeBack(core, v, epoch, event);
}
function answered(core, s, f, text) {
  if (!s.greeted && f.rid === HELLO_RID) return greeted(core, s, f, text);
  const r = s.requests.get(f.rid);
  if (!r) return;
  s.requests.delete(f.rid);
  if (f.t === "error" && f.code === "RATE_LIMITED") {
    s.paused = core.retryAt(f, 0);
    return release(core, r);
  }
  const { what } = r;
  switch (what.kind) {
    case "send":
      return sendAnswered(core, what.v, what.item, f);
    case "recall":
      return recallAnswered(core, what.v, what.item, f);
    case "outcome":
      return outcomeAnswered(core, what.v, what.item, f);
    case "sync":
      return syncAnswered(core, what.v, what.log, f);
    case "ack":
      return ackAnswered(core, what.v, what.log, what.seq, f);
    case "read":
      return readAnswered(core, what.v, what.log, what.seq, f);
    case "conversations":
      return listed(core, s, f);
    case "ask":
      return what.ask.done(f, text);
  }
}
function release(core, r) {
  const { what } = r;
  switch (what.kind) {
    case "send":
    case "recall":
      what.v.land(what.item);
      break;
    case "outcome":
      what.v.land(what.item);
      if (what.item.result?.sent) what.v.suspects.push(what.item);
      break;
    case "sync":
      what.v.syncing = false;
      break;
    case "ack":
      what.v.acking = false;
      break;
    case "read":
      what.v.reading = false;
      break;
    case "conversations":
      if (core.session) core.session.listing = true;
      return;
    case "ask":
      core.asks.push(what.ask);
      return;
  }
  core.look(what.v);
}
function greeted(core, s, f, text) {
  const err = refusal(f);
  if (err) {
    s.refusal = err;
    return;
  }
  if (f.t !== "welcome") return;
  if (core.user !== "" && core.user !== f.user) {
    s.refusal = new TidingsError("INVALID_ARGUMENT", `the token is of the user ${f.user}, the outbox belongs to ${core.user}`);
    s.fatal = true;
    return s.finish({ code: 0 });
  }
  if (core.user === "") core.note({ op: "user", user: f.user });
  core.user = f.user;
  core.limits = sane(f.limits);
  core.session = s;
  stands2(s, f);
  for (const v of core.convs.values()) core.look(v);
  if (!s.relayed) core.setState({ state: "online" });
  for (const o of core.observers) o.online(text);
}
function sane(theirs) {
  return Object.fromEntries(Object.entries(LIMITS).map(([key, ours]) => [key, Math.max(theirs[key] ?? 0, 0) || ours]));
}
function listed(core, s, f) {
  if (refusal(f)) {
    s.listing = true;
    s.listAt = core.retryAt(f, 0);
    return;
  }
  for (const l of f.list) {
    s.listed.add(l.conv);
    const v = core.conversation(l.conv);
    if (v.away) core.begin(v);
    core.expect(v, l.epoch, l.head);
    if (v.follow && v.log.epoch === l.epoch) {
      v.acked = Math.max(v.acked, l.delivered);
      v.doubt ||= !v.unsynced && l.head < v.log.cursor;
    }
    if (l.read > 0) readMoved(core, v, { type: "read_moved", conv: l.conv, epoch: l.epoch, seq: l.read, unread: l.unread, more: l.unread_more });
  }
  const last = f.list.at(-1);
  if (f.more && last) {
    s.listing = true;
    s.listFrom = last.conv;
  } else {
    unlisted(core, s);
  }
}
function unlisted(core, s) {
  for (const v of core.convs.values()) {
    if (s.listed.has(v.conv) || !v.follow || v.unsynced) continue;
    v.doubt = true;
    core.look(v);
  }
  for (const item of core.box.sent.values()) {
    if (s.listed.has(item.conv) || core.convs.get(item.conv)?.follow) continue;
    const v = core.conversation(item.conv);
    if (!v.follow) core.suspect(v, 0);
    core.look(v);
  }
}
function syncAnswered(core, v, log, f) {
  v.syncing = false;
  core.look(v);
  if (log !== v.log) return;
  const err = refusal(f);
  if (err) return syncRefused(core, v, f, err);
  if (log.epoch === 0) log.epoch = f.epoch;
  if (f.epoch !== log.epoch) return core.reset(v, f.epoch);
  const before = log.cursor;
  const { recalled, ok } = log.page(f.after, f.events, f.withheld);
  log.head = Math.max(log.head, f.head);
  if (!f.more) log.complete(f.head, v.heard.get(log.epoch) ?? 0);
  if (!ok || f.more && log.cursor === before) {
    v.syncAt = now() + core.pause(v.syncTries);
    v.syncTries++;
  } else {
    v.syncTries = 0;
  }
  if (v.unsynced || v.doubt) {
    v.unsynced = false;
    v.doubt = [...v.heard.keys()].some((epoch) => epoch !== log.epoch);
    core.suspect(v, log.epoch);
  }
  settleSuspects(core, v);
  core.merged(v, recalled);
  for (const event of f.events) takeBack(core, v, f.epoch, event);
  trimmed(core, v.conv, f.epoch, f.min_seq);
  if (!f.more && log.cursor >= log.head) v.answer();
}
function syncRefused(core, v, f, err) {
  if (f.code === "EPOCH_CHANGED" || f.code === "CURSOR_AHEAD") {
    core.reset(v, f.epoch);
  } else if (f.retry === "no" && v.heard.size > 0) {
    v.doubt = true;
  } else if (f.retry === "no") {
    const known = v.log.epoch !== 0;
    v.addSuspects(core.box.sentTo(v.conv, 0));
    v.log = new Log({ epoch: 0, seq: 0 });
    v.told = 0;
    v.recalls = [];
    v.follow = v.doubt = false;
    v.away = v.unsynced = true;
    v.answer(err);
    if (known) core.tell({ type: "dropped", conv: v.conv, epoch: 0, error: err });
  } else {
    v.syncAt = core.retryAt(f, v.syncTries);
    v.syncTries++;
  }
}
function settleSuspects(core, v) {
  if (v.suspects.length === 0) return;
  const here = /* @__PURE__ */ new Map();
  for (const { event } of v.log.run) if (event?.cmid && event.sender === core.user) here.set(event.cmid, event);
  v.suspects = v.suspects.filter((item) => {
    const event = here.get(item.cmid);
    if (event) stands(core, item, event.seq, v.log.epoch);
    return !event;
  });
}
function ackAnswered(core, v, log, seq, f) {
  v.acking = false;
  core.look(v);
  if (log !== v.log) return;
  if (f.t === "acked" && f.epoch === log.epoch) v.acked = Math.max(v.acked, seq);
  else if (f.retry === "resync") doubted(v, f);
  else if (f.retry === "no") v.acked = Math.max(v.acked, seq);
  else v.ackedAt = core.retryAt(f, 0);
}
function doubted(v, f) {
  v.doubt = v.follow;
  v.hear(f.epoch, 0);
}
function readAnswered(core, v, log, seq, f) {
  v.reading = false;
  core.look(v);
  if (log !== v.log) return;
  if (f.t === "read") {
    v.read = Math.max(v.read, seq);
    const moved = { type: "read_moved", conv: v.conv, epoch: f.epoch, seq: f.seq, unread: f.unread, more: f.unread_more };
    readMoved(core, v, moved);
    for (const o of core.observers) o.pushed(cursorPush(f));
  } else if (f.retry === "resync") {
    doubted(v, f);
    v.wantRead = 0;
  } else if (f.retry === "no") {
    v.wantRead = 0;
  } else {
    v.syncAt = core.retryAt(f, 0);
  }
}
function cursorPush(f) {
  return JSON.stringify({ t: "cursor", conv: f.conv, epoch: f.epoch, read: f.seq, unread: f.unread, unread_more: f.unread_more });
}
function readMoved(core, v, m) {
  const had = v.moved;
  const same = had.epoch === m.epoch && had.seq === m.seq && had.unread === m.unread && had.more === m.more;
  if (same || had.epoch === m.epoch && m.seq < had.seq) return;
  v.moved = m;
  core.news.read(v);
}

// clients/ts/src/session.ts
var HANDSHAKE_MS = 15e3;
var PROBE_MS = 1e4;
var PONG_GRACE_MS = 2e4;
var MAX_HINT_MS = 36e5;
var HELLO_RID = "1";
var CLOSE = { token: 4401, replaced: 4404, installed: 4410, lostLease: 4005 };
function reconnects(code) {
  return code < 4400 || code > 4499;
}
var Session = class {
  over = new Deferred();
  requests = /* @__PURE__ */ new Map();
  // without an answer yet, by rid
  listed = /* @__PURE__ */ new Set();
  // what the list has named so far
  /** It goes through another tab. */
  relayed;
  socket;
  opened = false;
  greeted = false;
  ended = false;
  expires;
  timer;
  greetedAt = 0;
  heardAt = now();
  patience = HANDSHAKE_MS;
  pong = false;
  /** No request before this instant: the server said so. */
  paused = 0;
  /** The list of conversations is being asked for, goes on after this one, and not before. */
  listing = false;
  listFrom = "";
  listAt = 0;
  /** The server stops then. */
  drainAt = Infinity;
  code = 0;
  /** Why the client gave the connection up. */
  fault;
  /** The answer to the hello. */
  refusal;
  fatal = false;
  #abort = new AbortController();
  #rids = 1;
  constructor(relayed) {
    this.relayed = relayed;
  }
  /** Aborts with the connection. */
  get signal() {
    return this.#abort.signal;
  }
  nextRid() {
    return String(++this.#rids);
  }
  write(text) {
    if (!this.ended) this.socket?.send(text);
  }
  giveUp(fault) {
    this.finish({ code: 0, fault });
  }
  /** Ends the session at once. A farewell need not arrive. */
  finish(how) {
    if (this.ended) return;
    this.ended = true;
    this.code = how.code;
    this.fault = how.fault;
    clearTimeout(this.timer);
    if (this.socket) {
      this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
      this.socket.onerror = () => {
      };
      this.socket.close(how.farewell ? 1e3 : void 0);
    }
    this.#abort.abort();
    this.over.resolve();
  }
};
async function connect(core, open) {
  const s = new Session(core.relayed);
  core.link = s;
  if (!s.relayed) s.timer = setTimeout(() => s.giveUp(new Error("connect: no answer in time")), HANDSHAKE_MS);
  let token;
  try {
    token = s.relayed ? void 0 : await Promise.race([core.cfg.token(s.signal), s.over.promise.then(() => void 0)]);
    s.expires = token?.expires === void 0 ? void 0 : Number(token.expires);
  } catch (cause) {
    s.giveUp(new Error(`get a token: ${String(cause)}`, { cause }));
  }
  if (!s.ended) listen(core, s, open(s), token);
  await s.over.promise;
  return ended(core, s);
}
function listen(core, s, socket, token) {
  s.socket = socket;
  socket.onerror = () => {
    if (!s.opened) s.finish({ code: 0 });
  };
  socket.onclose = (event) => s.finish({ code: event.code === 1005 || event.code === 1006 ? 0 : event.code });
  socket.onopen = () => {
    if (socket.protocol !== SUBPROTOCOL) return s.giveUp(new Error(`connect: the server does not speak ${SUBPROTOCOL}`));
    clearTimeout(s.timer);
    s.opened = true;
    s.heardAt = now();
    const { device, name } = core.cfg;
    s.write(encode({ t: "hello", ...token ? { token: token.text } : {}, device, install: core.install, client: name }, HELLO_RID));
    core.wake();
    void refresh(core, s);
  };
  socket.onmessage = (event) => {
    s.heardAt = now();
    if (typeof event.data !== "string") return;
    try {
      take(core, s, event.data);
    } catch (err) {
      s.giveUp(err);
    }
  };
}
function stands2(s, welcome) {
  s.greeted = s.listing = true;
  s.greetedAt = now();
  s.patience = s.relayed ? Infinity : welcome.ping_ms + PONG_GRACE_MS;
}
async function ended(core, s) {
  core.link = core.session = void 0;
  for (const r of s.requests.values()) {
    const { what } = r;
    if (what.kind === "send" || what.kind === "recall") what.item.doubted = true;
    release(core, r);
  }
  if (s.greeted) for (const o of core.observers) o.offline();
  const end = {
    error: s.fault ?? s.refusal,
    code: s.code,
    hint: 0,
    lived: s.greeted ? now() - s.greetedAt : 0,
    fatal: s.fatal,
    ghost: s.opened && !s.greeted && !s.refusal && s.code === 0
  };
  if (s.refusal) {
    end.error = s.refusal;
    end.hint = s.refusal.retryAfterMs;
    if (s.code === 0 && s.refusal.code === "UNAUTHENTICATED") end.code = CLOSE.token;
    if (s.code === 0 && s.refusal.code === "INSTALL_REPLACED") end.code = CLOSE.installed;
  }
  if (!s.opened && !s.fault && !core.closed && !s.relayed) await probe(core, end);
  if (s.drainAt !== Infinity) end.hint = Math.max(s.drainAt - now(), 1);
  end.error ??= new Error(end.code === 0 ? "the connection was lost" : `the server has closed the connection with the code ${end.code}`);
  return end;
}
async function probe(core, end) {
  const url = readyUrl(core.cfg.url);
  end.error = new Error(`connect: ${core.cfg.url} takes no connection`);
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(PROBE_MS), cache: "no-store" });
    await answer.body?.cancel();
    if (answer.status === 401) end.code = CLOSE.token;
    const seconds = Number(answer.headers.get("Retry-After"));
    if (seconds > 0) end.hint = Math.min(seconds * 1e3, MAX_HINT_MS) + core.pause(0);
  } catch {
  }
}
async function refresh(core, s) {
  for (let tries = 0; s.expires !== void 0 && !s.ended; ) {
    const left = s.expires - Date.now();
    await sleep(tries > 0 ? core.pause(tries) : Math.max(left - Math.min(left / 5, 3e5), core.cfg.backoffMinMs), s.signal);
    if (s.ended) return;
    tries++;
    try {
      const token = await core.cfg.token(s.signal);
      await core.ask({ t: "refresh", token: token.text }, s.signal);
      s.expires = token.expires === void 0 ? void 0 : Number(token.expires);
      tries = 0;
    } catch {
    }
  }
}

// clients/ts/src/run.ts
var STABLE_MS = 1e4;
async function run(core, open) {
  let refused = false;
  let ghosts = [];
  for (let tries = 0; !core.closed; ) {
    const { relayed } = core;
    const end = await connect(core, open);
    if (core.closed) break;
    if (relayed) {
      if (!core.relayed && core.state.state === "stopped") await core.again.wait();
      continue;
    }
    if (end.lived > 0) refused = false;
    if (end.lived > STABLE_MS) tries = 0;
    if (end.ghost) ghosts.push(now());
    ghosts = ghosts.filter((at) => now() - at <= core.cfg.requestTimeoutMs);
    let { code } = end;
    if (code === CLOSE.replaced && ghosts.length > 0) {
      ghosts.shift();
      code = CLOSE.lostLease;
    }
    const again = code === CLOSE.token && !refused;
    refused = code === CLOSE.token;
    if (again) continue;
    const why = { ...end.error ? { error: end.error } : {}, ...code ? { code } : {} };
    if (end.fatal || code !== 0 && !reconnects(code)) {
      core.setState({ state: "stopped", ...why });
      await core.again.wait();
      tries = 0;
      refused = false;
      continue;
    }
    const retryMs = end.hint || core.pause(tries++);
    core.setState({ state: "offline", retryMs, ...why });
    if (await core.again.wait(retryMs)) tries = 0;
  }
  core.setState({ state: "stopped", error: new ClosedError() });
}

// clients/ts/src/relay.ts
var Line = class {
  protocol = SUBPROTOCOL;
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  id;
  asked = false;
  #post;
  constructor(id, post) {
    this.id = id;
    this.#post = post;
  }
  /** Asks the tab that leads to take it. */
  ask() {
    this.asked = true;
    this.#post({ kind: "open", line: this.id });
  }
  send(text) {
    this.#post({ kind: "frame", line: this.id, text });
  }
  close() {
    this.#post({ kind: "closed", line: this.id });
  }
  opened() {
    this.onopen?.({});
  }
  frame(data) {
    this.onmessage?.({ data });
  }
  closed() {
    this.onclose?.({ code: 1006 });
  }
};
var Relay = class {
  #core;
  #post;
  #ends = /* @__PURE__ */ new Map();
  #welcome;
  // of the connection that stands
  constructor(core, post) {
    this.#core = core;
    this.#post = post;
  }
  open(tab, line) {
    this.#ends.set(`${tab} ${line}`, { tab, line, greeted: false });
    if (this.#welcome !== void 0) this.#post({ kind: "opened", line }, tab);
  }
  closed(tab, line) {
    this.#ends.delete(`${tab} ${line}`);
  }
  /** Takes what a tab says to the server. */
  frame(tab, line, text) {
    const key = `${tab} ${line}`;
    const end = this.#ends.get(key);
    if (!end || this.#welcome === void 0) return;
    const request = JSON.parse(text);
    const answer = (reply) => this.#send(end, JSON.stringify({ ...JSON.parse(reply), rid: request.rid }));
    if (request.t === "pong") return;
    if (request.t === "hello") {
      end.greeted = true;
      return answer(this.#welcome);
    }
    const queued = this.#core.queueAsk({
      encode: (rid) => JSON.stringify({ ...request, rid }),
      live: () => this.#ends.get(key) === end,
      done: (f, reply) => {
        answer(reply);
        if (f.t === "read" && this.#core.session) take(this.#core, this.#core.session, cursorPush(f));
      }
    });
    if (!queued) answer(JSON.stringify({ t: "error", code: "RATE_LIMITED", message: "too many requests wait", stored: "unchanged", retry: "same" }));
  }
  online(welcome) {
    this.#welcome = welcome;
    for (const end of this.#ends.values()) this.#post({ kind: "opened", line: end.line }, end.tab);
  }
  offline() {
    this.#welcome = void 0;
    for (const end of this.#ends.values()) this.#post({ kind: "closed", line: end.line }, end.tab);
    this.#ends.clear();
  }
  pushed(frame) {
    for (const end of this.#ends.values()) if (end.greeted) this.#send(end, frame);
  }
  told() {
  }
  settled() {
  }
  #send(end, text) {
    this.#post({ kind: "frame", line: end.line, text }, end.tab);
  }
};

// clients/ts/src/tabs.ts
var Tabs = class {
  #core;
  #name;
  #storage;
  #settle;
  #me = randomId();
  #bus;
  #own;
  #left = new AbortController();
  #release = new Deferred();
  // of the lock
  #joined = new Deferred();
  #calls = /* @__PURE__ */ new Map();
  #ids = 0;
  #leader = "";
  #relay;
  // of a leader
  #line;
  // of a follower
  #failed = false;
  constructor(core, name, storage, settle2) {
    if (!globalThis.navigator?.locks) throw invalid("tabs cannot be kept apart: there are no Web Locks here (the page has to come over https, or from localhost)");
    this.#core = core;
    this.#name = name;
    this.#storage = storage;
    this.#settle = settle2;
    this.#own = new OwnDesk(core);
    this.#bus = new BroadcastChannel(name);
    this.#bus.onmessage = (e) => {
      if (e.data.to === void 0 || e.data.to === this.#me) this.#take(e.data);
    };
    core.relayed = true;
  }
  /** Waits until it is known which tab leads. */
  async join() {
    this.#stand();
    this.#post({ kind: "who" });
    await this.#joined.promise;
  }
  /** The way of the next connection; undefined: this tab needs a socket. */
  line() {
    if (!this.#core.relayed) return void 0;
    this.#line = new Line(++this.#ids, (said) => this.#post(said, this.#leader));
    if (this.#leader) this.#line.ask();
    return this.#line;
  }
  /** Lets the others lead. */
  leave() {
    this.#left.abort();
    for (const call of this.#calls.values()) call.answer.reject(new ClosedError());
    this.#calls.clear();
    this.#release.resolve();
    this.#bus.close();
  }
  /** Stands for the lead: whoever has the lock has it, until its tab is gone. */
  #stand() {
    this.#failed = false;
    navigator.locks.request(this.#name, { signal: this.#left.signal }, () => this.#lead()).catch((err) => {
      if (!this.#left.signal.aborted) this.#fail(err);
    });
  }
  async #lead() {
    const core = this.#core;
    const storage = this.#storage();
    core.load(storage, await storage.open(core.cfg.device, core.cfg.install));
    core.relayed = false;
    this.#leader = this.#me;
    this.#line = void 0;
    this.#relay = new Relay(core, (said, to) => this.#post(said, to));
    core.observers.push(this, this.#relay);
    core.link?.finish({ code: 0 });
    this.#post({ kind: "lead" });
    this.#joined.resolve();
    for (const [id, { name, args, answer }] of this.#calls) {
      this.#calls.delete(id);
      this.#call(name, args).then(answer.resolve, answer.reject);
    }
    await this.#release.promise;
  }
  /** Gives the lead up before it began: the outbox cannot be opened. */
  #fail(err) {
    this.#failed = true;
    this.#joined.reject(err);
    this.#core.setState({ state: "stopped", error: err });
  }
  #take(note) {
    switch (note.kind) {
      case "who":
        if (this.#relay) this.#welcome(note.from);
        return;
      case "lead":
        return this.#follow(note.from);
      case "open":
        return this.#relay?.open(note.from, note.line);
      case "closed":
        if (this.#relay) this.#relay.closed(note.from, note.line);
        else if (this.#line?.id === note.line) this.#line.closed();
        return;
      case "opened":
        if (this.#line?.id === note.line) this.#line.opened();
        return;
      case "frame":
        if (this.#relay) this.#relay.frame(note.from, note.line, note.text);
        else if (this.#line?.id === note.line) this.#line.frame(note.text);
        return;
      case "call":
        if (!this.#relay || this.#core.closed) return;
        this.#call(note.name, note.args).then(
          (value) => this.#post({ kind: "answer", id: note.id, value }, note.from),
          (err) => this.#core.closed || this.#post({ kind: "answer", id: note.id, error: pack(err) }, note.from)
        );
        return;
      case "answer": {
        const call = this.#calls.get(note.id);
        this.#calls.delete(note.id);
        if (note.error) call?.answer.reject(unpack(note.error));
        else call?.answer.resolve(note.value);
        return;
      }
      case "settled":
        return this.#settle(note.key, note.error ? { ...note.result, error: unpack(note.error) } : note.result);
      case "told":
        return this.#hear(note.error ? { ...note.update, error: unpack(note.error) } : note.update);
    }
  }
  /** Tells a tab that has come what it has missed. */
  #welcome(tab) {
    this.#post({ kind: "lead" }, tab);
    this.#tell(this.#core.state, tab);
    for (const item of this.#core.box.waiting.values()) {
      if (item.asked) this.#tell({ type: "asked", entry: item.toEntry(), ...item.asked.why ? { error: item.asked.why } : {} }, tab);
    }
  }
  #follow(leader) {
    if (this.#relay || this.#leader === leader) return;
    this.#leader = leader;
    this.#joined.resolve();
    if (this.#line?.asked) this.#line.closed();
    else this.#line?.ask();
    for (const [id, { name, args }] of this.#calls) this.#post({ kind: "call", id, name, args }, leader);
  }
  /** Hears what the leader told. */
  #hear(update) {
    const core = this.#core;
    if (this.#relay) return;
    if (update.type === "connection") {
      const { type: _, ...state } = update;
      return core.setState(state);
    }
    if (update.type === "ended") {
      if (core.cfg.handle) core.box.untold++;
      if (update.sent?.seq) core.expect(core.conversation(update.entry.conv), update.sent.epoch, update.sent.seq);
    }
    core.news.tell(update);
  }
  #post(said, to) {
    if (!this.#left.signal.aborted) this.#bus.postMessage({ ...said, from: this.#me, ...to ? { to } : {} });
  }
  // --- what others hear of a leader
  told(update) {
    this.#tell(update);
  }
  #tell(update, to) {
    if (update.type !== "connection" && update.type !== "ended" && update.type !== "asked" && update.type !== "lost") return;
    if (this.#core.closed) return;
    const { error, ...rest } = update;
    this.#post({ kind: "told", update: rest, ...error ? { error: pack(error) } : {} }, to);
  }
  settled(key, { error, ...result2 }) {
    this.#post({ kind: "settled", key, result: result2, ...error ? { error: pack(error) } : {} });
  }
  online() {
  }
  offline() {
  }
  pushed() {
  }
  // --- the outbox, wherever it is
  enter(entry) {
    return this.#call("enter", [entry]);
  }
  waiting() {
    return this.#call("waiting", []);
  }
  resend(conv, cmid) {
    return this.#call("resend", [conv, cmid]);
  }
  discard(conv, cmid) {
    return this.#call("discard", [conv, cmid]);
  }
  flush() {
    return this.#call("flush", []);
  }
  async reconnect() {
    if (this.#failed) this.#stand();
    else await this.#call("reconnect", []);
  }
  #call(name, args) {
    if (this.#relay) return this.#own[name](...args);
    const id = ++this.#ids;
    const answer = new Deferred();
    this.#calls.set(id, { name, args, answer });
    if (this.#leader) this.#post({ kind: "call", id, name, args }, this.#leader);
    return answer.promise;
  }
};
function pack(err) {
  const is = err instanceof TidingsError ? "refusal" : err instanceof ClosedError ? "closed" : err instanceof DiscardedError ? "discarded" : "error";
  const { code = "", message = String(err), retryAfterMs = 0, epoch = 0, head = 0, seq = 0 } = err;
  return { is, code, message, retryAfterMs, epoch, head, seq };
}
function unpack(p) {
  if (p.is === "refusal") return new TidingsError(p.code, p.message, p);
  return p.is === "closed" ? new ClosedError() : p.is === "discarded" ? new DiscardedError() : new Error(p.message);
}

// clients/ts/src/client.ts
var Client = class _Client {
  #core;
  #desk;
  #tabs;
  #work = Promise.resolve();
  #pending = /* @__PURE__ */ new Map();
  #online;
  constructor(core) {
    this.#core = core;
    this.#desk = new OwnDesk(core);
  }
  /** Loads the outbox and begins to connect; it does not wait for the connection. The caller has to call close. */
  static async open(config) {
    const core = new Core(settle(config));
    const client = new _Client(core);
    const settled = (key, result2) => client.#settled(key, result2);
    core.observers.push({ settled, told() {
    }, online() {
    }, offline() {
    }, pushed() {
    } });
    const { webSocket, device, url } = core.cfg;
    const socket = () => new webSocket(url, [SUBPROTOCOL]);
    const named = typeof config.outbox === "string" ? config.outbox : `tidings-${device}`;
    if (config.outbox !== void 0 && typeof config.outbox !== "string") {
      core.load(config.outbox, await config.outbox.open(device, core.cfg.install));
    } else if (typeof indexedDB !== "undefined") {
      const tabs = new Tabs(core, named, () => new IndexedDBStorage(named), settled);
      client.#desk = client.#tabs = tabs;
      await tabs.join();
    } else if (config.outbox !== void 0) {
      throw invalid("there is no IndexedDB here: Config.outbox has to be a storage");
    }
    core.install ||= randomId();
    client.#work = Promise.all([run(core, () => client.#tabs?.line() ?? socket()), core.news.deliver()]);
    if (typeof addEventListener === "function") {
      client.#online = () => core.state.state === "offline" && core.again.set();
      addEventListener("online", client.#online);
    }
    return client;
  }
  /** Ends the connection and waits for everything of the client, also for handle to return. What is in the outbox stays there for the next open, if it has a storage. */
  async close() {
    if (this.#online) removeEventListener("online", this.#online);
    this.#core.close();
    for (const p of this.#pending.values()) p.resolve({ error: new ClosedError() });
    await this.#work;
    await this.#core.storage?.close();
    this.#core.storage = void 0;
    this.#tabs?.leave();
  }
  /** Connects at once: after a pause that is not over, or after the client has stopped. */
  reconnect() {
    void this.#desk.reconnect();
  }
  /** Who the client is by its token; empty before the first connection of a client without an outbox of before. */
  get user() {
    return this.#core.user;
  }
  /** How the connection is now. */
  get state() {
    return this.#core.state;
  }
  /**
   * Puts a message into the outbox. When the promise is fulfilled the message is safe there: from then on it is sent until the server's final answer.
   *
   * Rejects with INVALID_ARGUMENT and TOO_LARGE; IDEMPOTENCY_MISMATCH when another message with this cmid is in the outbox; RATE_LIMITED when the outbox is full;
   * OUTCOME_UNKNOWN when the storage failed, so that it may be sent after the next open or not at all.
   */
  async send(m) {
    const { conv, cmid = randomId(), body } = m;
    checkId("conv", conv);
    checkId("cmid", cmid);
    checkText("body", body, MAX_BODY);
    const message = { conv, cmid, body, ...m.data === void 0 ? {} : { data: dataText(m.data) } };
    const err = checkFits(message, this.#core.limits.frame);
    if (err) throw err;
    return this.#enter({ ...message, at: Date.now() });
  }
  /**
   * Puts the recall of a message of the user into the outbox, like send. A message that is still in the outbox has no place yet: discard it, or wait until it is sent.
   *
   * The final answer can be NOT_SENDER, NOT_FOUND, ALREADY_RECALLED, RECALL_WINDOW_EXPIRED, INVALID_ARGUMENT (it is no message), NOT_MEMBER, IDEMPOTENCY_MISMATCH, or
   * EPOCH_CHANGED: the log has another history, in which the message may stand elsewhere.
   */
  async recall(r) {
    const { conv, cmid = randomId() } = r;
    checkId("conv", conv);
    checkId("cmid", cmid);
    const target = { seq: r.target.seq, epoch: r.target.epoch || (this.#core.convs.get(conv)?.log.epoch ?? 0) };
    if (!(target.seq >= 1 && target.epoch >= 1)) throw invalid(`recall a message of ${conv}: its place is not known: seq ${target.seq}, epoch ${target.epoch}`);
    return this.#enter({ conv, cmid, body: "", target, at: Date.now() });
  }
  async #enter(entry) {
    if (this.#core.closed) throw new ClosedError();
    const key = keyOf(entry.conv, entry.cmid);
    const known = this.#pending.get(key);
    const answer = known ?? new Deferred();
    this.#pending.set(key, answer);
    try {
      const result2 = await this.#desk.enter(entry);
      if (result2) this.#settled(key, result2);
    } catch (err) {
      if (!known) this.#pending.delete(key);
      throw err;
    }
    const { data, ...shown } = entry;
    return {
      ...shown,
      ...data === void 0 ? {} : { data: JSON.parse(data) },
      wait: async (signal) => {
        const { sent, error } = await until(answer.promise, signal, (cause) => unknown(entry.cmid, cause));
        if (error instanceof ClosedError) throw unknown(entry.cmid, error);
        if (sent) return sent;
        throw error ?? unknown(entry.cmid, void 0);
      }
    };
  }
  #settled(key, result2) {
    this.#pending.get(key)?.resolve(result2);
    this.#pending.delete(key);
  }
  /** Waits until the outbox has nothing that could be sent. */
  flush(signal) {
    return until(this.#desk.flush(), signal, (cause) => unavailable("wait for the outbox", cause));
  }
  /** What is in the outbox, in the order in which it was queued. */
  waiting() {
    return this.#desk.waiting();
  }
  /** Sends an entry again that the application was asked about. */
  resend(conv, cmid) {
    return this.#desk.resend(conv, cmid);
  }
  /** Takes an entry out of the outbox. It may have been stored by an earlier transmission. */
  discard(conv, cmid) {
    return this.#desk.discard(conv, cmid);
  }
  /** Says that the user has read up to seq. It does not wait; what the server has stored comes as read_moved. */
  markRead(conv, seq) {
    const v = this.#core.conversation(conv);
    v.wantRead = Math.max(v.wantRead, seq);
    this.#core.look(v);
  }
  /** What memory holds of a conversation from the seq from on, at most limit events, and how far the copy is complete. */
  events(conv, from, limit) {
    const log = this.#core.convs.get(conv)?.log;
    if (!log) return { events: [], upTo: { epoch: 0, seq: 0 } };
    return { events: log.events(from, limit), upTo: { epoch: log.epoch, seq: log.cursor } };
  }
  /** Follows a conversation from a position on, if it is not followed yet. It does not wait; sync does. */
  follow(conv, after) {
    const v = this.#core.conversation(conv);
    if (v.follow) return;
    v.followFrom(after);
    this.#core.look(v);
  }
  /**
   * Follows a conversation, from its beginning if it was not followed, and waits until the copy is as far as the log was at some instant after the call. The events come
   * to handle; it has not had all of them then. NOT_MEMBER: the user cannot see such a conversation.
   */
  async sync(conv, signal) {
    if (this.#core.closed) throw new ClosedError();
    const v = this.#core.conversation(conv);
    if (!v.follow) v.followFrom({ epoch: 0, seq: 0 });
    const done = new Deferred();
    v.waiters.push(done);
    this.#core.look(v);
    try {
      await until(done.promise, signal, (cause) => unavailable(`sync ${conv}`, cause));
    } finally {
      v.waiters = v.waiters.filter((w) => w !== done);
      v.served = v.served.filter((w) => w !== done);
    }
  }
  /** Asks what became of a message of the user, whichever device sent it. */
  async outcome(conv, cmid, signal) {
    const { stored, seq, epoch } = await this.#core.ask({ t: "outcome", conv, cmid }, signal);
    return { stored, seq, epoch };
  }
  /** Asks for one event. at.epoch 0 is the current history. */
  async fetch(conv, at, signal) {
    const { event } = await this.#core.ask({ t: "fetch", conv, epoch: at.epoch, seq: at.seq }, signal);
    if (!event) throw new Error("fetch an event: the answer has none");
    return event;
  }
  /** Asks for the whole list, ordered by conv. */
  async conversations(signal) {
    const list = [];
    for (let after = ""; ; ) {
      const f = await this.#core.ask({ t: "conversations", ...after ? { after } : {}, limit: this.#core.limits.page }, signal);
      for (const { min_seq: minSeq, unread_more: unreadMore, last, left = false, ...same } of f.list) {
        const { conv, epoch, head, delivered, read, unread, at } = same;
        list.push({ conv, epoch, head, minSeq, delivered, read, unread, unreadMore, at, left, ...last ? { last } : {} });
      }
      const end = f.list.at(-1);
      if (!f.more || !end) return list;
      after = end.conv;
    }
  }
};
function unknown(cmid, cause) {
  return new TidingsError("OUTCOME_UNKNOWN", `wait for the answer to ${cmid}: ${cause instanceof Error ? cause.message : "given up"}`, { cause });
}
async function until(promise, signal, given) {
  if (!signal) return promise;
  const up = new Deferred();
  const abort = () => up.reject(given(signal));
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([promise, up.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
export {
  Client,
  ClosedError,
  DiscardedError,
  TidingsError,
  codeOf
};
