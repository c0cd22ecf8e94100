// One connection: connect, hello, heartbeat, end.

import type { Core } from "./core.js";
import { readyUrl, type Socket, type Token } from "./config.js";
import type { Conversation } from "./conversation.js";
import { TidingsError } from "./errors.js";
import type { Log } from "./log.js";
import type { Item } from "./outbox.js";
import { release, take } from "./replies.js";
import { Deferred, now, sleep } from "./signal.js";
import { encode, SUBPROTOCOL, type Frame } from "./wire.js";

const HANDSHAKE_MS = 15_000;
const PROBE_MS = 10_000;
/** After ping_ms without a frame the connection is dead. */
const PONG_GRACE_MS = 20_000;
/** The longest pause that a header can ask for. */
const MAX_HINT_MS = 3_600_000;

export const HELLO_RID = "1";

/** The codes that a server closes a socket with, and that mean something here. */
export const CLOSE = { token: 4401, replaced: 4404, installed: 4410, lostLease: 4005 } as const;

/** A client that was closed with the code may connect again as it is. */
export function reconnects(code: number): boolean {
  return code < 4400 || code > 4499;
}

/** A request of the application, here or in another tab. */
export interface Ask {
  encode(rid: string): string;
  /** Somebody waits for the answer. */
  live(): boolean;
  done(f: Frame, text: string): void;
}

/** What a rid stands for. */
export interface Waiting {
  kind: string;
  at: number;
  what:
    | { kind: "send" | "recall" | "outcome"; v: Conversation; item: Item }
    | { kind: "sync" | "ack" | "read"; v: Conversation; log: Log; seq: number }
    | { kind: "conversations" }
    | { kind: "ask"; ask: Ask };
}

/** How a session ended. */
export interface Ending {
  error: Error | undefined;
  /** Of the close frame, or that which stands for the refusal of the handshake; 0: none came. */
  code: number;
  /** Milliseconds; 0: the server gave none. */
  hint: number;
  /** Milliseconds since the welcome; 0: it never came. */
  lived: number;
  /** The same would happen again. */
  fatal: boolean;
  /** The hello was said, and nobody knows whether the server will take it. */
  ghost: boolean;
}

/** One connection. */
export class Session {
  readonly over = new Deferred<void>();
  readonly requests = new Map<string, Waiting>(); // without an answer yet, by rid
  readonly listed = new Set<string>(); // what the list has named so far
  /** It goes through another tab. */
  readonly relayed: boolean;
  socket: Socket | undefined;
  opened = false;
  greeted = false;
  ended = false;
  expires: number | undefined;
  timer: ReturnType<typeof setTimeout> | undefined;

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
  fault: Error | undefined;
  /** The answer to the hello. */
  refusal: TidingsError | undefined;
  fatal = false;

  readonly #abort = new AbortController();
  #rids = 1;

  constructor(relayed: boolean) {
    this.relayed = relayed;
  }

  /** Aborts with the connection. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  nextRid(): string {
    return String(++this.#rids);
  }

  write(text: string): void {
    if (!this.ended) this.socket?.send(text);
  }

  giveUp(fault: Error): void {
    this.finish({ code: 0, fault });
  }

  /** Ends the session at once. A farewell need not arrive. */
  finish(how: { code: number; fault?: Error; farewell?: boolean }): void {
    if (this.ended) return;
    this.ended = true;
    this.code = how.code;
    this.fault = how.fault;
    clearTimeout(this.timer);
    if (this.socket) {
      this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
      this.socket.onerror = () => {}; // a socket that is closed before it is open says so
      this.socket.close(how.farewell ? 1000 : undefined);
    }
    this.#abort.abort();
    this.over.resolve();
  }
}

/** One connection, from the token to its end. */
export async function connect(core: Core, open: (s: Session) => Socket): Promise<Ending> {
  const s = new Session(core.relayed);
  core.link = s;
  // The way to another tab is there when that tab has a connection.
  if (!s.relayed) s.timer = setTimeout(() => s.giveUp(new Error("connect: no answer in time")), HANDSHAKE_MS);
  let token: Token | undefined;
  try {
    token = s.relayed ? undefined : await Promise.race([core.cfg.token(s.signal), s.over.promise.then(() => undefined)]);
    s.expires = token?.expires === undefined ? undefined : Number(token.expires);
  } catch (cause) {
    s.giveUp(new Error(`get a token: ${String(cause)}`, { cause }));
  }
  if (!s.ended) listen(core, s, open(s), token);
  await s.over.promise;
  return ended(core, s);
}

function listen(core: Core, s: Session, socket: Socket, token: Token | undefined): void {
  s.socket = socket;
  socket.onerror = () => { // a close follows and says more, but in Node not after a handshake that was refused
    if (!s.opened) s.finish({ code: 0 });
  };
  socket.onclose = (event: { code: number }) => s.finish({ code: event.code === 1005 || event.code === 1006 ? 0 : event.code });
  socket.onopen = () => {
    if (socket.protocol !== SUBPROTOCOL) return s.giveUp(new Error(`connect: the server does not speak ${SUBPROTOCOL}`));
    clearTimeout(s.timer);
    s.opened = true;
    s.heardAt = now();
    const { device, name } = core.cfg;
    s.write(encode({ t: "hello", ...(token ? { token: token.text } : {}), device, install: core.install, client: name }, HELLO_RID));
    core.wake();
    void refresh(core, s);
  };
  socket.onmessage = (event: { data: unknown }) => {
    s.heardAt = now();
    if (typeof event.data !== "string") return; // nothing of this protocol
    try {
      take(core, s, event.data);
    } catch (err) {
      s.giveUp(err as Error);
    }
  };
}

/** Notes what a welcome says of the connection. */
export function stands(s: Session, welcome: Frame): void {
  s.greeted = s.listing = true;
  s.greetedAt = now();
  s.patience = s.relayed ? Infinity : welcome.ping_ms + PONG_GRACE_MS; // the tab with the socket watches over it
}

/** Takes everything back that has no answer, and says why the session ended. */
async function ended(core: Core, s: Session): Promise<Ending> {
  core.link = core.session = undefined;
  for (const r of s.requests.values()) {
    const { what } = r;
    if (what.kind === "send" || what.kind === "recall") what.item.doubted = true;
    release(core, r);
  }
  if (s.greeted) for (const o of core.observers) o.offline();
  const end: Ending = {
    error: s.fault ?? s.refusal, code: s.code, hint: 0, lived: s.greeted ? now() - s.greetedAt : 0, fatal: s.fatal,
    ghost: s.opened && !s.greeted && !s.refusal && s.code === 0,
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

/**
 * Looks after a handshake that was refused: a browser cannot read the answer to it, so that GET /readyz has to say when to come again. A proxy that wants
 * credentials for everything says so there, too.
 */
async function probe(core: Core, end: Ending): Promise<void> {
  const url = readyUrl(core.cfg.url);
  end.error = new Error(`connect: ${core.cfg.url} takes no connection`);
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(PROBE_MS), cache: "no-store" });
    await answer.body?.cancel();
    if (answer.status === 401) end.code = CLOSE.token;
    const seconds = Number(answer.headers.get("Retry-After"));
    if (seconds > 0) end.hint = Math.min(seconds * 1000, MAX_HINT_MS) + core.pause(0); // everybody else was told the same
  } catch {
    // Nobody answers, or not to us: our own pauses are as good.
  }
}

/** Gets a new token before the one of the session ends. */
async function refresh(core: Core, s: Session): Promise<void> {
  for (let tries = 0; s.expires !== undefined && !s.ended;) {
    const left = s.expires - Date.now();
    await sleep(tries > 0 ? core.pause(tries) : Math.max(left - Math.min(left / 5, 300_000), core.cfg.backoffMinMs), s.signal);
    if (s.ended) return;
    tries++;
    try {
      const token = await core.cfg.token(s.signal);
      await core.ask({ t: "refresh", token: token.text }, s.signal);
      s.expires = token.expires === undefined ? undefined : Number(token.expires);
      tries = 0;
    } catch {
      // Again after a pause; the server ends the connection when the token does.
    }
  }
}
