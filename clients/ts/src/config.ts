// Who connects where, and how.

import { checkId } from "./check.js";
import { invalid } from "./errors.js";
import type { Position } from "./log.js";
import type { Storage } from "./storage.js";
import type { Update } from "./update.js";

/** What a token source returns. */
export interface Token {
  text: string;
  /** When to ask for the next one ahead of time: milliseconds since 1970, or a Date. Absent: when the server refuses it. */
  expires?: number | Date;
}

/** What of a WebSocket the client uses. */
export interface Socket {
  readonly protocol: string;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  send(text: string): void;
  close(code?: number): void;
}

/** Who connects where. The fields up to device are required. */
export interface Config {
  /** ws, wss, http or https; without a path /v1/ws is meant. */
  url: string;
  /** Asked before each connection, and again before the token ends. */
  token: (signal: AbortSignal) => Token | Promise<Token>;
  /** This app of this user: an id that stays the same for its life. All tabs of a browser profile are one device. */
  device: string;

  /** The app and its version, for the server's people. Default: tidings-js. */
  name?: string;
  /** Where the outbox is kept: the name of a database in the browser, or a storage. Default: tidings-<device> where IndexedDB is; elsewhere memory, lost with the process. */
  outbox?: string | Storage;
  /** Gets everything in order, one at a time; the next one waits for the promise. It must not wait for close. */
  handle?: (update: Update) => void | Promise<void>;
  /** From where a conversation is followed; undefined: not. Default: each, from its beginning. It must not call the client. */
  start?: (conv: string) => Position | undefined;
  /** This installation: an id. Default: a random one that the storage remembers. */
  install?: string;

  /** Events of one conversation that stay in memory after handle had them. Default: 1000. */
  keep?: number;
  /** Events of one conversation that may wait for handle; more are not asked for. Default: 1000. */
  window?: number;
  /** Entries in the outbox, or ended and not yet told to handle. Default: 10000. */
  maxOutbox?: number;
  /** Messages of a conversation under way at once. With more than the default 1, one that was refused for now may come after later ones. */
  pipeline?: number;
  /** Milliseconds between two acks of one conversation; below 0: no acks. Default: 500. */
  ackEveryMs?: number;

  /** Until a connection that does not answer is given up. Default: 30000. */
  requestTimeoutMs?: number;
  /** The first pause before a new attempt is between 0 and this, and doubles. Default: 500. */
  backoffMinMs?: number;
  /** Default: 30000. */
  backoffMaxMs?: number;

  /** The class of WebSockets, where there is none of the environment (Node before 22). */
  webSocket?: new (url: string, protocols: string[]) => Socket;
}

/** A configuration with its defaults. */
export interface Settings extends Required<Omit<Config, "outbox" | "handle" | "start" | "webSocket">> {
  handle: ((update: Update) => void | Promise<void>) | undefined;
  start: (conv: string) => Position | undefined;
  webSocket: new (url: string, protocols: string[]) => Socket;
}

/** Checks a configuration and fills in the defaults. */
export function settle(c: Config): Settings {
  checkId("device", c.device);
  if (c.install) checkId("install", c.install);
  if (typeof c.token !== "function") throw invalid("there is no source of tokens");
  const webSocket = c.webSocket ?? (globalThis.WebSocket as Config["webSocket"]);
  if (!webSocket) throw invalid("there is no WebSocket here: Config.webSocket has to name one");
  return {
    url: socketUrl(c.url),
    token: c.token,
    device: c.device,
    name: c.name || "tidings-js",
    handle: c.handle,
    start: c.start ?? (() => ({ epoch: 0, seq: 0 })),
    install: c.install ?? "",
    keep: c.keep || 1000,
    window: c.window || 1000,
    maxOutbox: c.maxOutbox || 10_000,
    pipeline: c.pipeline || 1,
    ackEveryMs: c.ackEveryMs || 500,
    requestTimeoutMs: c.requestTimeoutMs || 30_000,
    backoffMinMs: c.backoffMinMs || 500,
    backoffMaxMs: c.backoffMaxMs || 30_000,
    webSocket,
  };
}

/** The address of the gateway. */
export function socketUrl(text: string): string {
  if (!text.includes("://")) throw invalid(`the URL of the server, "${text}", needs http:// or https:// in front`);
  const url = new URL(text);
  if (url.protocol === "http:") url.protocol = "ws:";
  else if (url.protocol === "https:") url.protocol = "wss:";
  else if (url.protocol !== "ws:" && url.protocol !== "wss:") throw invalid(`the URL of the server has the scheme ${url.protocol}, not ws, wss, http or https`);
  if (url.pathname === "/") url.pathname = "/v1/ws";
  return url.href;
}

/** Where the server that has a gateway says whether it is ready. */
export function readyUrl(socket: string): string {
  const url = new URL(socket);
  url.protocol = url.protocol === "ws:" ? "http:" : "https:";
  url.pathname = url.pathname.endsWith("/v1/ws") ? url.pathname.replace(/v1\/ws$/, "readyz") : "/readyz";
  url.search = "";
  return url.href;
}
