// What the client does with a frame of the server.

import type { Conversation } from "./conversation.js";
import type { Core } from "./core.js";
import { TidingsError } from "./errors.js";
import { Log } from "./log.js";
import { recallAnswered, takeBack, trimmed } from "./recalls.js";
import { outcomeAnswered, sendAnswered, stands as messageStands } from "./sends.js";
import { HELLO_RID, stands, type Session, type Waiting } from "./session.js";
import { now } from "./signal.js";
import type { ReadMoved } from "./update.js";
import { decode, LIMITS, refusal, type Event, type Frame, type Limits } from "./wire.js";

/** Does what a frame of the server says. */
export function take(core: Core, s: Session, text: string): void {
  const f = decode(text);
  if (f.rid !== "") {
    answered(core, s, f, text);
    core.wake(); // there is room for another request
  } else if (s.greeted) {
    pushed(core, s, f, text);
  }
}

/** Takes what was not asked for. It is a hint: nothing of it is believed without the log, but for an event that is the next. */
function pushed(core: Core, s: Session, f: Frame, text: string): void {
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

function arrived(core: Core, v: Conversation, epoch: number, event: Event): void {
  if (!v.follow || v.log.epoch !== epoch || (v.log.cursor + 1 !== event.seq && v.unsynced) || core.full(v)) {
    core.expect(v, epoch, event.seq);
  } else {
    v.hear(epoch, event.seq);
    core.merged(v, v.log.add(event));
  }
  takeBack(core, v, epoch, event);
}

/** Takes a reply. */
function answered(core: Core, s: Session, f: Frame, text: string): void {
  if (!s.greeted && f.rid === HELLO_RID) return greeted(core, s, f, text);
  const r = s.requests.get(f.rid);
  if (!r) return; // nobody asked
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

/** Takes a request back: what it was for has to be asked for again. */
export function release(core: Core, r: Waiting): void {
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

/** Takes the answer to the hello. */
function greeted(core: Core, s: Session, f: Frame, text: string): void {
  const err = refusal(f);
  if (err) {
    s.refusal = err; // the close frame follows
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
  stands(s, f);
  for (const v of core.convs.values()) core.look(v);
  if (!s.relayed) core.setState({ state: "online" });
  for (const o of core.observers) o.online(text);
}

/** Puts our own limits where a server names none. */
function sane(theirs: Partial<Limits>): Limits {
  return Object.fromEntries(Object.entries(LIMITS).map(([key, ours]) => [key, Math.max(theirs[key as keyof Limits] ?? 0, 0) || ours])) as unknown as Limits;
}

/** Compares the list of conversations with what is known here: it tells what has happened while there was no connection. */
function listed(core: Core, s: Session, f: Frame): void {
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
      v.doubt ||= !v.unsynced && l.head < v.log.cursor; // perhaps it has lost its end
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

/** Looks into what the list, which has everything that the user ever was a member of, does not name: a restore may have lost it. */
function unlisted(core: Core, s: Session): void {
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

function syncAnswered(core: Core, v: Conversation, log: Log, f: Frame): void {
  v.syncing = false;
  core.look(v);
  if (log !== v.log) return; // of a history that was given up meanwhile
  const err = refusal(f);
  if (err) return syncRefused(core, v, f, err);
  if (log.epoch === 0) log.epoch = f.epoch;
  if (f.epoch !== log.epoch) return core.reset(v, f.epoch);
  const before = log.cursor;
  const { recalled, ok } = log.page(f.after, f.events, f.withheld);
  log.head = Math.max(log.head, f.head);
  if (!f.more) log.complete(f.head, v.heard.get(log.epoch) ?? 0);
  if (!ok || (f.more && log.cursor === before)) { // it brings nothing: not at once again
    v.syncAt = now() + core.pause(v.syncTries);
    v.syncTries++;
  } else {
    v.syncTries = 0;
  }
  if (v.unsynced || v.doubt) {
    v.unsynced = false;
    v.doubt = [...v.heard.keys()].some((epoch) => epoch !== log.epoch); // the answer may be older
    core.suspect(v, log.epoch);
  }
  settleSuspects(core, v);
  core.merged(v, recalled);
  for (const event of f.events) takeBack(core, v, f.epoch, event);
  trimmed(core, v.conv, f.epoch, f.min_seq);
  if (!f.more && log.cursor >= log.head) v.answer();
}

function syncRefused(core: Core, v: Conversation, f: Frame, err: TidingsError): void {
  if (f.code === "EPOCH_CHANGED" || f.code === "CURSOR_AHEAD") { // the latter with our epoch: this log has lost its end
    core.reset(v, f.epoch);
  } else if (f.retry === "no" && v.heard.size > 0) {
    v.doubt = true; // perhaps we are a member since
  } else if (f.retry === "no") {
    const known = v.log.epoch !== 0;
    v.addSuspects(core.box.sentTo(v.conv, 0)); // a restore may not know the conversation
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

/** Clears messages that the new history has. */
function settleSuspects(core: Core, v: Conversation): void {
  if (v.suspects.length === 0) return;
  const here = new Map<string, Event>();
  for (const { event } of v.log.run) if (event?.cmid && event.sender === core.user) here.set(event.cmid, event);
  v.suspects = v.suspects.filter((item) => {
    const event = here.get(item.cmid);
    if (event) messageStands(core, item, event.seq, v.log.epoch);
    return !event;
  });
}

function ackAnswered(core: Core, v: Conversation, log: Log, seq: number, f: Frame): void {
  v.acking = false;
  core.look(v);
  if (log !== v.log) return; // of a history that was given up meanwhile
  if (f.t === "acked" && f.epoch === log.epoch) v.acked = Math.max(v.acked, seq); // a greater stored value is of nobody's interest, a smaller one would be asked for for ever
  else if (f.retry === "resync") doubted(v, f);
  else if (f.retry === "no") v.acked = Math.max(v.acked, seq); // given up: the next one will be judged anew
  else v.ackedAt = core.retryAt(f, 0);
}

/** Notes that a request was judged by another history, or by one that has lost its end. */
function doubted(v: Conversation, f: Frame): void {
  v.doubt = v.follow;
  v.hear(f.epoch, 0);
}

function readAnswered(core: Core, v: Conversation, log: Log, seq: number, f: Frame): void {
  v.reading = false;
  core.look(v);
  if (log !== v.log) return;
  if (f.t === "read") {
    v.read = Math.max(v.read, seq);
    const moved: ReadMoved = { type: "read_moved", conv: v.conv, epoch: f.epoch, seq: f.seq, unread: f.unread, more: f.unread_more };
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

/** The answer to a read as another device would hear of it. */
export function cursorPush(f: Frame): string {
  return JSON.stringify({ t: "cursor", conv: f.conv, epoch: f.epoch, read: f.seq, unread: f.unread, unread_more: f.unread_more });
}

function readMoved(core: Core, v: Conversation, m: ReadMoved): void {
  const had = v.moved;
  const same = had.epoch === m.epoch && had.seq === m.seq && had.unread === m.unread && had.more === m.more;
  if (same || (had.epoch === m.epoch && m.seq < had.seq)) return;
  v.moved = m;
  core.news.read(v);
}
