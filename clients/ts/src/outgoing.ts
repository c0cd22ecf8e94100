// Chooses what is sent next on a connection.

import type { Conversation } from "./conversation.js";
import type { Core } from "./core.js";
import { askApplication, refuse } from "./sends.js";
import type { Session, Waiting } from "./session.js";
import { now } from "./signal.js";
import { checkFits, encode, PONG, type Request } from "./wire.js";

/** For the server that stops, after its hint. */
const DRAIN_GRACE_MS = 10_000;

/** Sends what there is to send now, and comes back when there may be more. */
export function pump(core: Core): void {
  const s = core.link;
  if (!s?.opened || s.ended) return;
  clearTimeout(s.timer);
  const o = new Outgoing(core, s);
  o.collect();
  if (!s.ended) s.timer = setTimeout(() => pump(core), Math.max(o.next - now(), 1));
}

class Outgoing {
  readonly #core: Core;
  readonly #s: Session;
  readonly #now = now();
  /** When to look again. */
  next = this.#now + 60_000;

  constructor(core: Core, s: Session) {
    this.#core = core;
    this.#s = s;
  }

  collect(): void {
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
  #patience(): void {
    const s = this.#s;
    const silent = s.heardAt + s.patience;
    if (this.#now >= silent) return s.giveUp(new Error("the server says nothing any more"));
    this.#at(silent);
    const stops = s.drainAt + DRAIN_GRACE_MS;
    if (this.#now >= stops) return s.giveUp(new Error("the server stops, and has not closed the connection"));
    this.#at(stops);
    const [oldest] = s.requests.values(); // they stand in the order in which they were sent
    if (!oldest) return;
    const late = oldest.at + this.#core.cfg.requestTimeoutMs;
    if (this.#now >= late) return s.giveUp(new Error(`the server has not answered a request of the type ${oldest.kind} in time`));
    this.#at(late);
  }

  #at(t: number): void {
    this.next = Math.min(this.next, t);
  }

  /** One more request may be sent. When not, an answer makes room. */
  #room(): boolean {
    return this.#s.requests.size < Math.max(this.#core.limits.inflight, 1);
  }

  /** Something has to wait, until t or for room. */
  #wait(t: number): boolean {
    if (this.#now < t) {
      this.#at(t);
      return true;
    }
    return !this.#room();
  }

  #send(write: (rid: string) => string, what: Waiting["what"]): void {
    const rid = this.#s.nextRid();
    this.#s.requests.set(rid, { kind: what.kind, at: this.#now, what });
    this.#at(this.#now + this.#core.cfg.requestTimeoutMs);
    this.#s.write(write(rid));
  }

  #request(request: Request, what: Waiting["what"]): void {
    this.#send((rid) => encode(request, rid), what);
  }

  /** Asks for the conversations, a page at a time. */
  #list(): void {
    const s = this.#s;
    if (!s.listing || this.#wait(s.listAt)) return;
    s.listing = false;
    this.#request({ t: "conversations", ...(s.listFrom ? { after: s.listFrom } : {}), limit: this.#core.limits.page }, { kind: "conversations" });
  }

  /** Sends what one conversation has to say. Tells whether it has to be looked at again without being woken. */
  #conversation(v: Conversation): boolean {
    let again = false;
    for (const part of [this.#sync, this.#queue, this.#suspects, this.#ack, this.#read]) again = part.call(this, v) || again;
    return again;
  }

  #sync(v: Conversation): boolean {
    const core = this.#core;
    if (!core.wantsSync(v)) return false;
    if (this.#wait(v.syncAt)) return true;
    let limit = core.limits.page;
    const gap = v.log.gap();
    if (!v.unsynced && !v.doubt && gap > 0) limit = Math.min(limit, gap);
    if (core.full(v)) limit = 1; // only the epoch is of interest
    v.syncing = true;
    v.heard.clear();
    v.served.push(...v.waiters.splice(0));
    const { epoch, cursor } = v.log;
    this.#request({ t: "sync", conv: v.conv, epoch, after: cursor, limit }, { kind: "sync", v, log: v.log, seq: 0 });
    return false;
  }

  /** Sends what waits in its order, as much at once as the configuration allows. */
  #queue(v: Conversation): boolean {
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
      } else if (target) { // of any age: whatever the server has forgotten, it can do no harm
        v.fly(item);
        this.#request({ t: "recall", conv, epoch: target.epoch, target: target.seq, cmid }, { kind: "recall", v, item });
      } else if (old > 0 && !item.aged && Date.now() - item.at > old) {
        askApplication(core, item);
      } else {
        const message = { conv, cmid, body: item.body, ...(item.data === undefined ? {} : { data: item.data }) };
        const err = checkFits(message, core.limits.frame);
        if (err) {
          refuse(core, v, item, err, item.doubted);
          return this.#queue(v); // of which it may be no part any more
        }
        v.fly(item);
        this.#request({ t: "send", ...message }, { kind: "send", v, item });
      }
    }
    return false;
  }

  /** Asks what became of messages that another history had, once this history is known. */
  #suspects(v: Conversation): boolean {
    if (v.follow && (v.unsynced || v.log.cursor < v.log.head)) return false;
    while (v.suspects.length > 0) {
      if (this.#wait(v.sendAt)) return true;
      const item = v.suspects.shift();
      if (item) this.#request({ t: "outcome", conv: item.conv, cmid: item.cmid }, { kind: "outcome", v, item });
    }
    return false;
  }

  #ack(v: Conversation): boolean {
    if (!this.#core.wantsAck(v)) return false;
    if (this.#wait(v.ackedAt + this.#core.cfg.ackEveryMs)) return true;
    v.acking = true;
    v.ackedAt = this.#now;
    this.#request({ t: "ack", conv: v.conv, epoch: v.log.epoch, seq: v.told }, { kind: "ack", v, log: v.log, seq: v.told });
    return false;
  }

  #read(v: Conversation): boolean {
    if (v.reading || v.wantRead <= v.read || v.doubt || (v.follow && v.unsynced)) return false;
    if (this.#wait(v.syncAt)) return true;
    v.reading = true;
    this.#request({ t: "read", conv: v.conv, epoch: v.log.epoch, seq: v.wantRead }, { kind: "read", v, log: v.log, seq: v.wantRead });
    return false;
  }
}
