// Several tabs, one device: one of them holds the socket and the outbox, the others go through it.
// docs/decisions/typescript-client.md says why it is done so.

import type { Socket } from "./config.js";
import type { Core, Observer } from "./core.js";
import { OwnDesk, type Desk } from "./desk.js";
import { ClosedError, DiscardedError, invalid, TidingsError } from "./errors.js";
import type { Result, WaitingEntry } from "./outbox.js";
import { Line, Relay, type LineSaid } from "./relay.js";
import { Deferred } from "./signal.js";
import { randomId, type Storage, type StoredEntry } from "./storage.js";
import type { Update } from "./update.js";

/** What tabs say to each other. Errors are packed: a copy of them would lose its class. */
export type Said =
  | { kind: "who" } // a tab is there
  | { kind: "lead" } // the sender has the socket
  | LineSaid
  | { kind: "call"; id: number; name: keyof Desk; args: unknown[] }
  | { kind: "answer"; id: number; value?: unknown; error?: Packed }
  | { kind: "told"; update: Update; error?: Packed }
  | { kind: "settled"; key: string; result: Result; error?: Packed };

/** Without to it is meant for all. */
type Note = Said & { from: string; to?: string };

/** A call that has no answer yet. */
interface Call {
  name: keyof Desk;
  args: unknown[];
  answer: Deferred<unknown>;
}

/** This tab among those of its device: it leads, or follows the one that does. */
export class Tabs implements Desk, Observer {
  readonly #core: Core;
  readonly #name: string;
  readonly #storage: () => Storage;
  readonly #settle: (key: string, result: Result) => void;
  readonly #me = randomId();
  readonly #bus: BroadcastChannel;
  readonly #own: OwnDesk;
  readonly #left = new AbortController();
  readonly #release = new Deferred<void>(); // of the lock
  readonly #joined = new Deferred<void>();
  readonly #calls = new Map<number, Call>();
  #ids = 0;
  #leader = "";
  #relay: Relay | undefined; // of a leader
  #line: Line | undefined; // of a follower
  #failed = false;

  constructor(core: Core, name: string, storage: () => Storage, settle: (key: string, result: Result) => void) {
    if (!globalThis.navigator?.locks) throw invalid("tabs cannot be kept apart: there are no Web Locks here (the page has to come over https, or from localhost)");
    this.#core = core;
    this.#name = name;
    this.#storage = storage;
    this.#settle = settle;
    this.#own = new OwnDesk(core);
    this.#bus = new BroadcastChannel(name);
    this.#bus.onmessage = (e: MessageEvent<Note>) => {
      if (e.data.to === undefined || e.data.to === this.#me) this.#take(e.data);
    };
    core.relayed = true;
  }

  /** Waits until it is known which tab leads. */
  async join(): Promise<void> {
    this.#stand();
    this.#post({ kind: "who" });
    await this.#joined.promise;
  }

  /** The way of the next connection; undefined: this tab needs a socket. */
  line(): Socket | undefined {
    if (!this.#core.relayed) return undefined;
    this.#line = new Line(++this.#ids, (said) => this.#post(said, this.#leader));
    if (this.#leader) this.#line.ask();
    return this.#line;
  }

  /** Lets the others lead. */
  leave(): void {
    this.#left.abort();
    for (const call of this.#calls.values()) call.answer.reject(new ClosedError());
    this.#calls.clear();
    this.#release.resolve();
    this.#bus.close();
  }

  /** Stands for the lead: whoever has the lock has it, until its tab is gone. */
  #stand(): void {
    this.#failed = false;
    navigator.locks.request(this.#name, { signal: this.#left.signal }, () => this.#lead()).catch((err: unknown) => {
      if (!this.#left.signal.aborted) this.#fail(err as Error);
    });
  }

  async #lead(): Promise<void> {
    const core = this.#core;
    const storage = this.#storage();
    core.load(storage, await storage.open(core.cfg.device, core.cfg.install));
    core.relayed = false;
    this.#leader = this.#me;
    this.#line = undefined;
    this.#relay = new Relay(core, (said, to) => this.#post(said, to));
    core.observers.push(this, this.#relay);
    core.link?.finish({ code: 0 }); // that to the former leader; the next one is a socket
    this.#post({ kind: "lead" });
    this.#joined.resolve();
    for (const [id, { name, args, answer }] of this.#calls) { // nobody answered them
      this.#calls.delete(id);
      this.#call(name, args).then(answer.resolve, answer.reject);
    }
    await this.#release.promise;
  }

  /** Gives the lead up before it began: the outbox cannot be opened. */
  #fail(err: Error): void {
    this.#failed = true;
    this.#joined.reject(err);
    this.#core.setState({ state: "stopped", error: err });
  }

  #take(note: Note): void {
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
        if (!this.#relay || this.#core.closed) return; // the next one that leads is asked again
        this.#call(note.name, note.args).then(
          (value) => this.#post({ kind: "answer", id: note.id, value }, note.from),
          (err: unknown) => this.#core.closed || this.#post({ kind: "answer", id: note.id, error: pack(err) }, note.from),
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
        return this.#hear(note.error ? ({ ...note.update, error: unpack(note.error) } as Update) : note.update);
    }
  }

  /** Tells a tab that has come what it has missed. */
  #welcome(tab: string): void {
    this.#post({ kind: "lead" }, tab);
    this.#tell(this.#core.state, tab);
    for (const item of this.#core.box.waiting.values()) {
      if (item.asked) this.#tell({ type: "asked", entry: item.toEntry(), ...(item.asked.why ? { error: item.asked.why } : {}) }, tab);
    }
  }

  #follow(leader: string): void {
    if (this.#relay || this.#leader === leader) return;
    this.#leader = leader;
    this.#joined.resolve();
    if (this.#line?.asked) this.#line.closed(); // it led to another tab
    else this.#line?.ask();
    for (const [id, { name, args }] of this.#calls) this.#post({ kind: "call", id, name, args }, leader);
  }

  /** Hears what the leader told. */
  #hear(update: Update): void {
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

  #post(said: Said, to?: string): void {
    if (!this.#left.signal.aborted) this.#bus.postMessage({ ...said, from: this.#me, ...(to ? { to } : {}) });
  }

  // --- what others hear of a leader

  told(update: Update): void {
    this.#tell(update);
  }

  #tell(update: Update, to?: string): void {
    if (update.type !== "connection" && update.type !== "ended" && update.type !== "asked" && update.type !== "lost") return; // of a log: each tab has its own
    if (this.#core.closed) return; // the next one that leads has other news
    const { error, ...rest } = update as Update & { error?: Error };
    this.#post({ kind: "told", update: rest as Update, ...(error ? { error: pack(error) } : {}) }, to);
  }

  settled(key: string, { error, ...result }: Result): void {
    this.#post({ kind: "settled", key, result, ...(error ? { error: pack(error) } : {}) });
  }

  online(): void {}
  offline(): void {}
  pushed(): void {}

  // --- the outbox, wherever it is

  enter(entry: StoredEntry): Promise<Result | undefined> {
    return this.#call("enter", [entry]) as Promise<Result | undefined>;
  }

  waiting(): Promise<WaitingEntry[]> {
    return this.#call("waiting", []) as Promise<WaitingEntry[]>;
  }

  resend(conv: string, cmid: string): Promise<void> {
    return this.#call("resend", [conv, cmid]) as Promise<void>;
  }

  discard(conv: string, cmid: string): Promise<void> {
    return this.#call("discard", [conv, cmid]) as Promise<void>;
  }

  flush(): Promise<void> {
    return this.#call("flush", []) as Promise<void>;
  }

  async reconnect(): Promise<void> {
    if (this.#failed) this.#stand();
    else await this.#call("reconnect", []);
  }

  #call(name: keyof Desk, args: unknown[]): Promise<unknown> {
    if (this.#relay) return (this.#own[name] as (...args: unknown[]) => Promise<unknown>)(...args);
    const id = ++this.#ids;
    const answer = new Deferred<unknown>();
    this.#calls.set(id, { name, args, answer });
    if (this.#leader) this.#post({ kind: "call", id, name, args }, this.#leader);
    return answer.promise;
  }
}

/** An error that can be copied. */
interface Packed {
  is: "refusal" | "closed" | "discarded" | "error";
  code: string;
  message: string;
  retryAfterMs: number;
  epoch: number;
  head: number;
  seq: number;
}

function pack(err: unknown): Packed {
  const is = err instanceof TidingsError ? "refusal" : err instanceof ClosedError ? "closed" : err instanceof DiscardedError ? "discarded" : "error";
  const { code = "", message = String(err), retryAfterMs = 0, epoch = 0, head = 0, seq = 0 } = err as Partial<TidingsError>;
  return { is, code, message, retryAfterMs, epoch, head, seq };
}

function unpack(p: Packed): Error {
  if (p.is === "refusal") return new TidingsError(p.code, p.message, p);
  return p.is === "closed" ? new ClosedError() : p.is === "discarded" ? new DiscardedError() : new Error(p.message);
}
