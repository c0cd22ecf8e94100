// The state of a client, and what its parts do with it: conversations, the queue of each, what is due.

import type { Settings } from "./config.js";
import { Conversation } from "./conversation.js";
import { ClosedError, TidingsError } from "./errors.js";
import { Log } from "./log.js";
import { News } from "./news.js";
import { Item, Outbox, type Result } from "./outbox.js";
import { pump } from "./outgoing.js";
import { endRecalls } from "./recalls.js";
import type { Ask, Session } from "./session.js";
import { now, Signal } from "./signal.js";
import type { Change, Storage, Stored, StoredEntry } from "./storage.js";
import type { Connection, Update } from "./update.js";
import { encode, LIMITS, refusal, type Frame, type Limits, type Request } from "./wire.js";

/** How many requests of the application may wait for the connection. */
const MAX_ASKS = 1000;

/** Who else wants to know what happens: the other tabs of the device. Texts are frames as they came. */
export interface Observer {
  told(update: Update): void;
  settled(key: string, result: Result): void;
  online(welcome: string): void;
  offline(): void;
  pushed(frame: string): void;
}

/** The state of a client. The functions of the other files take it as their first argument. */
export class Core {
  readonly cfg: Settings;
  readonly news: News;
  readonly box = new Outbox();
  readonly convs = new Map<string, Conversation>();
  /** Those that may have something to send. */
  readonly due = new Set<Conversation>();
  /** Requests that wait to be sent. */
  asks: Ask[] = [];
  /** For the run loop: connect now. */
  readonly again = new Signal();
  readonly observers: Observer[] = [];

  storage: Storage | undefined;
  install: string;
  /** As the server or the outbox says; empty before the first welcome. */
  user = "";
  /** Of the newest welcome. */
  limits: Limits = LIMITS;
  state: Connection = { type: "connection", state: "offline" };
  /** The connection that is being made or stands, and the same once the welcome has come. */
  link: Session | undefined;
  session: Session | undefined;
  /** Another tab has the socket and the outbox. */
  relayed = false;
  closed = false;

  readonly #open = new Set<(err: Error) => void>(); // asks without an answer
  #woken = false;

  constructor(cfg: Settings) {
    this.cfg = cfg;
    this.install = cfg.install;
    this.news = new News(this);
  }

  // --- the outbox

  /** Takes in what a storage had. Nobody knows which of it has been transmitted. */
  load(storage: Storage, stored: Stored): void {
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
  async enter(entry: StoredEntry): Promise<Item> {
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
    if (this.box.waits(item)) { // it was not discarded meanwhile
      const v = this.conversation(item.conv);
      v.enqueue(item);
      this.look(v);
    }
    return item;
  }

  /** Remembers a change that need not be on the disk at once. A storage that fails refuses the next entry. */
  note(change: Change): void {
    this.storage?.write(change).catch(() => {});
  }

  // --- conversations

  /** What is known of a conversation, which may be nothing. */
  conversation(conv: string): Conversation {
    let v = this.convs.get(conv);
    if (!v) {
      v = new Conversation(conv);
      this.convs.set(conv, v);
      this.begin(v);
    }
    return v;
  }

  /** Asks the application where it follows a conversation from. */
  begin(v: Conversation): void {
    const at = this.cfg.start(v.conv);
    v.followFrom(at ?? { epoch: 0, seq: 0 });
    v.follow = at !== undefined;
  }

  /** Puts a conversation among those that may have something to send. */
  look(v: Conversation): void {
    this.due.add(v);
    this.wake();
  }

  /** Lets what is due be sent once this turn of the event loop has done its work. */
  wake(): void {
    if (this.#woken) return;
    this.#woken = true;
    queueMicrotask(() => {
      this.#woken = false;
      pump(this);
    });
  }

  /** Notes that a conversation has reached head in the history epoch. */
  expect(v: Conversation, epoch: number, head: number): void {
    if (!v.follow) return this.suspect(v, epoch);
    v.hear(epoch, head);
    if (v.log.epoch === epoch) v.log.head = Math.max(v.log.head, head);
    else if (v.log.epoch !== 0) v.doubt = true; // otherwise a sync is due anyway
    this.look(v);
  }

  /** So much waits for the application that no more is taken. */
  full(v: Conversation): boolean {
    return v.log.cursor - v.told >= this.cfg.window;
  }

  /** A sync would bring something. */
  wantsSync(v: Conversation): boolean {
    if (!v.follow || v.syncing) return false;
    return v.doubt || (!this.full(v) && (v.unsynced || v.log.cursor < v.log.head || v.waiters.length + v.served.length > 0));
  }

  /** The server has to hear how far the log is stored. */
  wantsAck(v: Conversation): boolean {
    return this.cfg.ackEveryMs >= 0 && !this.relayed && v.follow && !v.acking && !v.unsynced && !v.doubt && v.told > v.acked;
  }

  /** Forgets a history and expects another one. */
  reset(v: Conversation, epoch: number): void {
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
  suspect(v: Conversation, epoch: number): void {
    v.addSuspects(this.box.sentTo(v.conv, epoch));
    if (v.suspects.length > 0) this.look(v);
  }

  /** Follows up on what a push or a page has changed. */
  merged(v: Conversation, recalled: readonly number[]): void {
    for (const seq of recalled) if (seq <= Math.max(v.told, v.telling) && !v.recalls.includes(seq)) v.recalls.push(seq);
    if (!this.cfg.handle) {
      v.told = v.log.cursor;
      v.recalls = [];
      v.dropped = false;
      v.log.forget(v.told, this.cfg.keep);
    } else if (v.told < v.log.cursor || v.recalls.length > 0) {
      this.news.log(v);
    }
    if (this.wantsSync(v) || this.wantsAck(v)) this.look(v); // most pushes bring nothing to say
  }

  // --- requests of the application

  /** Asks the server. It waits for a connection, and asks again after one that was lost. */
  ask(request: Request, signal?: AbortSignal): Promise<Frame> {
    return new Promise((resolve, reject) => {
      let waits = true;
      const end = (how: () => void): void => {
        waits = false;
        this.#open.delete(fail);
        signal?.removeEventListener("abort", abort);
        how();
      };
      const fail = (err: Error): void => end(() => reject(err));
      const abort = (): void => fail(unavailable(`ask the server (${request.t})`, signal));
      if (this.closed) return reject(new ClosedError());
      if (signal?.aborted) return abort();
      this.#open.add(fail);
      signal?.addEventListener("abort", abort);
      const done = (f: Frame): void => {
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
  queueAsk(ask: Ask): boolean {
    this.asks = this.asks.filter((other) => other.live());
    if (this.asks.length >= MAX_ASKS) return false;
    this.asks.push(ask);
    this.wake();
    return true;
  }

  // --- telling

  /** Tells the application, here and in other tabs. */
  tell(update: Update): void {
    this.news.tell(update);
    for (const o of this.observers) o.told(update);
  }

  setState(state: Omit<Connection, "type">): void {
    this.state = { type: "connection", ...state };
    this.news.stateChanged();
    for (const o of this.observers) o.told(this.state);
  }

  /** Tells those who wait for the final answer to an entry. */
  settle(item: Item, result: Result): void {
    item.result = result;
    item.done.resolve(result);
    for (const o of this.observers) o.settled(item.key, result);
  }

  // --- time

  /**
   * Milliseconds before try number n (from 0) is repeated: anything up to a bound that doubles ("full jitter",
   * https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
   */
  pause(n: number): number {
    return Math.random() * Math.min(this.cfg.backoffMinMs * 2 ** Math.min(n, 30), this.cfg.backoffMaxMs);
  }

  /** When a refused request may be repeated: the server's word comes first. */
  retryAt(f: Frame, tries: number): number {
    return now() + (f.retry_after_ms > 0 ? f.retry_after_ms : this.pause(tries));
  }

  /** Ends the connection and everything that waits. */
  close(): void {
    this.closed = true;
    this.again.set();
    this.link?.finish({ code: 0, farewell: true });
    this.news.close();
    const err = new ClosedError();
    for (const fail of [...this.#open]) fail(err);
    for (const item of this.box.waiting.values()) item.done.resolve({ error: err }); // nobody waits for more
    for (const v of this.convs.values()) for (const w of [...v.waiters.splice(0), ...v.served.splice(0)]) w.reject(err);
  }
}

/** What a call is answered with that the application has given up. */
export function unavailable(what: string, signal: AbortSignal | undefined): TidingsError {
  return new TidingsError("UNAVAILABLE", `${what}: given up`, { cause: signal?.reason });
}
