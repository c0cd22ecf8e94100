// The client as an application sees it.

import { checkId, checkText, dataText, MAX_BODY } from "./check.js";
import { settle, type Config } from "./config.js";
import { Core, unavailable } from "./core.js";
import { OwnDesk, type Desk } from "./desk.js";
import { ClosedError, invalid, TidingsError } from "./errors.js";
import { IndexedDBStorage } from "./indexeddb.js";
import type { Position } from "./log.js";
import { keyOf, type Entry, type Result, type WaitingEntry } from "./outbox.js";
import { run } from "./run.js";
import { Deferred } from "./signal.js";
import { randomId, type Sent, type StoredEntry } from "./storage.js";
import { Tabs } from "./tabs.js";
import type { Connection } from "./update.js";
import { checkFits, SUBPROTOCOL, type Event } from "./wire.js";

/** What {@link Client.send} takes. Its cmid is the identity of the message: the same again is the same message. Default: a random one. */
export interface Message {
  conv: string;
  cmid?: string;
  body: string;
  /** An object of JSON. It becomes text once: what is sent again is the same, byte for byte. */
  data?: object;
}

/**
 * What {@link Client.recall} takes. target is where the message stands, as sent and arrived tell; without an epoch: in the history that is known here. The cmid is
 * the identity of the recall, not of the message.
 */
export interface Recall {
  conv: string;
  target: { seq: number; epoch?: number };
  cmid?: string;
}

/** A message or a recall on its way. */
export interface Pending extends Entry {
  /**
   * Returns the final answer: what is sent, or rejects with the refusal. An entry that the application was asked about has none until it decides, and none has one
   * while the client is offline or stopped: give it a signal.
   */
  wait(signal?: AbortSignal): Promise<Sent>;
}

/** What became of a message of the user: stored is yes, no (not now: a transmission may still be under way) or purged. */
export interface Outcome {
  stored: string;
  /** Of yes and purged. */
  seq: number;
  epoch: number;
}

/** One entry of the user's list of conversations. */
export interface Summary {
  conv: string;
  epoch: number;
  /** The newest seq that the user can see, and the oldest one that is kept. */
  head: number;
  minSeq: number;
  /** How far this device has stored the log, and how far the user has read. */
  delivered: number;
  read: number;
  unread: number;
  /** There are more than unread. */
  unreadMore: boolean;
  /** The newest event, and when it was stored: milliseconds since 1970. */
  last?: Event;
  at: number;
  /** The user is a member no longer. */
  left: boolean;
}

/** A device of a user. */
export class Client {
  readonly #core: Core;
  #desk: Desk;
  #tabs: Tabs | undefined;
  #work: Promise<unknown> = Promise.resolve();
  readonly #pending = new Map<string, Deferred<Result>>();
  #online: (() => void) | undefined;

  private constructor(core: Core) {
    this.#core = core;
    this.#desk = new OwnDesk(core);
  }

  /** Loads the outbox and begins to connect; it does not wait for the connection. The caller has to call close. */
  static async open(config: Config): Promise<Client> {
    const core = new Core(settle(config));
    const client = new Client(core);
    const settled = (key: string, result: Result): void => client.#settled(key, result);
    core.observers.push({ settled, told() {}, online() {}, offline() {}, pushed() {} });
    const { webSocket, device, url } = core.cfg;
    const socket = (): InstanceType<typeof webSocket> => new webSocket(url, [SUBPROTOCOL]);
    const named = typeof config.outbox === "string" ? config.outbox : `tidings-${device}`;
    if (config.outbox !== undefined && typeof config.outbox !== "string") {
      core.load(config.outbox, await config.outbox.open(device, core.cfg.install));
    } else if (typeof indexedDB !== "undefined") {
      const tabs = new Tabs(core, named, () => new IndexedDBStorage(named), settled);
      client.#desk = client.#tabs = tabs;
      await tabs.join();
    } else if (config.outbox !== undefined) {
      throw invalid("there is no IndexedDB here: Config.outbox has to be a storage");
    }
    core.install ||= randomId(); // of this process alone; a tab that comes to lead has that of the outbox
    client.#work = Promise.all([run(core, () => client.#tabs?.line() ?? socket()), core.news.deliver()]);
    if (typeof addEventListener === "function") { // of browsers: the network is there again
      client.#online = () => core.state.state === "offline" && core.again.set();
      addEventListener("online", client.#online);
    }
    return client;
  }

  /** Ends the connection and waits for everything of the client, also for handle to return. What is in the outbox stays there for the next open, if it has a storage. */
  async close(): Promise<void> {
    if (this.#online) removeEventListener("online", this.#online);
    this.#core.close();
    for (const p of this.#pending.values()) p.resolve({ error: new ClosedError() });
    await this.#work;
    await this.#core.storage?.close();
    this.#core.storage = undefined;
    this.#tabs?.leave();
  }

  /** Connects at once: after a pause that is not over, or after the client has stopped. */
  reconnect(): void {
    void this.#desk.reconnect();
  }

  /** Who the client is by its token; empty before the first connection of a client without an outbox of before. */
  get user(): string {
    return this.#core.user;
  }

  /** How the connection is now. */
  get state(): Connection {
    return this.#core.state;
  }

  /**
   * Puts a message into the outbox. When the promise is fulfilled the message is safe there: from then on it is sent until the server's final answer.
   *
   * Rejects with INVALID_ARGUMENT and TOO_LARGE; IDEMPOTENCY_MISMATCH when another message with this cmid is in the outbox; RATE_LIMITED when the outbox is full;
   * OUTCOME_UNKNOWN when the storage failed, so that it may be sent after the next open or not at all.
   */
  async send(m: Message): Promise<Pending> {
    const { conv, cmid = randomId(), body } = m;
    checkId("conv", conv);
    checkId("cmid", cmid);
    checkText("body", body, MAX_BODY);
    const message = { conv, cmid, body, ...(m.data === undefined ? {} : { data: dataText(m.data) }) };
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
  async recall(r: Recall): Promise<Pending> {
    const { conv, cmid = randomId() } = r;
    checkId("conv", conv);
    checkId("cmid", cmid);
    const target: Position = { seq: r.target.seq, epoch: r.target.epoch || (this.#core.convs.get(conv)?.log.epoch ?? 0) };
    if (!(target.seq >= 1 && target.epoch >= 1)) throw invalid(`recall a message of ${conv}: its place is not known: seq ${target.seq}, epoch ${target.epoch}`);
    return this.#enter({ conv, cmid, body: "", target, at: Date.now() });
  }

  async #enter(entry: StoredEntry): Promise<Pending> {
    if (this.#core.closed) throw new ClosedError();
    const key = keyOf(entry.conv, entry.cmid);
    const known = this.#pending.get(key);
    const answer = known ?? new Deferred<Result>();
    this.#pending.set(key, answer);
    try {
      const result = await this.#desk.enter(entry);
      if (result) this.#settled(key, result);
    } catch (err) {
      if (!known) this.#pending.delete(key);
      throw err;
    }
    const { data, ...shown } = entry;
    return {
      ...shown,
      ...(data === undefined ? {} : { data: JSON.parse(data) as Record<string, unknown> }),
      wait: async (signal) => {
        const { sent, error } = await until(answer.promise, signal, (cause) => unknown(entry.cmid, cause));
        if (error instanceof ClosedError) throw unknown(entry.cmid, error);
        if (sent) return sent;
        throw error ?? unknown(entry.cmid, undefined);
      },
    };
  }

  #settled(key: string, result: Result): void {
    this.#pending.get(key)?.resolve(result);
    this.#pending.delete(key);
  }

  /** Waits until the outbox has nothing that could be sent. */
  flush(signal?: AbortSignal): Promise<void> {
    return until(this.#desk.flush(), signal, (cause) => unavailable("wait for the outbox", cause));
  }

  /** What is in the outbox, in the order in which it was queued. */
  waiting(): Promise<WaitingEntry[]> {
    return this.#desk.waiting();
  }

  /** Sends an entry again that the application was asked about. */
  resend(conv: string, cmid: string): Promise<void> {
    return this.#desk.resend(conv, cmid);
  }

  /** Takes an entry out of the outbox. It may have been stored by an earlier transmission. */
  discard(conv: string, cmid: string): Promise<void> {
    return this.#desk.discard(conv, cmid);
  }

  /** Says that the user has read up to seq. It does not wait; what the server has stored comes as read_moved. */
  markRead(conv: string, seq: number): void {
    const v = this.#core.conversation(conv);
    v.wantRead = Math.max(v.wantRead, seq);
    this.#core.look(v);
  }

  /** What memory holds of a conversation from the seq from on, at most limit events, and how far the copy is complete. */
  events(conv: string, from: number, limit: number): { events: Event[]; upTo: Position } {
    const log = this.#core.convs.get(conv)?.log;
    if (!log) return { events: [], upTo: { epoch: 0, seq: 0 } };
    return { events: log.events(from, limit), upTo: { epoch: log.epoch, seq: log.cursor } };
  }

  /** Follows a conversation from a position on, if it is not followed yet. It does not wait; sync does. */
  follow(conv: string, after: Position): void {
    const v = this.#core.conversation(conv);
    if (v.follow) return;
    v.followFrom(after);
    this.#core.look(v);
  }

  /**
   * Follows a conversation, from its beginning if it was not followed, and waits until the copy is as far as the log was at some instant after the call. The events come
   * to handle; it has not had all of them then. NOT_MEMBER: the user cannot see such a conversation.
   */
  async sync(conv: string, signal?: AbortSignal): Promise<void> {
    if (this.#core.closed) throw new ClosedError();
    const v = this.#core.conversation(conv);
    if (!v.follow) v.followFrom({ epoch: 0, seq: 0 });
    const done = new Deferred<void>();
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
  async outcome(conv: string, cmid: string, signal?: AbortSignal): Promise<Outcome> {
    const { stored, seq, epoch } = await this.#core.ask({ t: "outcome", conv, cmid }, signal);
    return { stored, seq, epoch };
  }

  /** Asks for one event. at.epoch 0 is the current history. */
  async fetch(conv: string, at: Position, signal?: AbortSignal): Promise<Event> {
    const { event } = await this.#core.ask({ t: "fetch", conv, epoch: at.epoch, seq: at.seq }, signal);
    if (!event) throw new Error("fetch an event: the answer has none");
    return event;
  }

  /** Asks for the whole list, ordered by conv. */
  async conversations(signal?: AbortSignal): Promise<Summary[]> {
    const list: Summary[] = [];
    for (let after = ""; ;) {
      const f = await this.#core.ask({ t: "conversations", ...(after ? { after } : {}), limit: this.#core.limits.page }, signal);
      for (const { min_seq: minSeq, unread_more: unreadMore, last, left = false, ...same } of f.list) {
        const { conv, epoch, head, delivered, read, unread, at } = same;
        list.push({ conv, epoch, head, minSeq, delivered, read, unread, unreadMore, at, left, ...(last ? { last } : {}) });
      }
      const end = f.list.at(-1);
      if (!f.more || !end) return list;
      after = end.conv;
    }
  }
}

function unknown(cmid: string, cause: unknown): TidingsError {
  return new TidingsError("OUTCOME_UNKNOWN", `wait for the answer to ${cmid}: ${cause instanceof Error ? cause.message : "given up"}`, { cause });
}

/** Waits for a promise, at most until the signal aborts. */
async function until<T>(promise: Promise<T>, signal: AbortSignal | undefined, given: (signal: AbortSignal) => Error): Promise<T> {
  if (!signal) return promise;
  const up = new Deferred<never>();
  const abort = (): void => up.reject(given(signal));
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([promise, up.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

