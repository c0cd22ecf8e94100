// The form that conversations have on the WebSocket: what a client writes, and how it reads what a server writes.
// docs/protocol.md describes it; internal/wire/testdata has an example of everything.

import { bytes } from "./check.js";
import { TidingsError } from "./errors.js";

/** What a client has to ask for in the handshake. */
export const SUBPROTOCOL = "tidings.v1";

/** One entry of a conversation's log. Fields that this release does not know are kept as they came. */
export interface Event {
  conv: string;
  /** Its position: 1, 2, 3 … in commit order, without holes. */
  seq: number;
  /** msg, recall, join, leave; one that is not known counts and is not shown. */
  kind: string;
  mid?: string;
  sender: string;
  sdev?: string;
  cmid?: string;
  /** Of a msg that was not recalled. */
  body?: string;
  data?: Record<string, unknown>;
  recalled?: boolean;
  /** Of a recall: the seq of the message. */
  target?: number;
  /** Who did it in the sender's stead. */
  actor?: string;
  /** Milliseconds since 1970 by the database's clock. */
  at: number;
}

/** A range of seqs, both ends inclusive, that the user does not get. */
export interface Withheld {
  from: number;
  to: number;
  why: string;
}

/** One entry of the user's list, as it is on the wire. */
export interface Listed {
  conv: string;
  epoch: number;
  head: number;
  min_seq: number;
  delivered: number;
  read: number;
  unread: number;
  unread_more: boolean;
  last?: Event;
  at: number;
  left?: boolean;
}

/** What a server takes, in bytes, counts and milliseconds. resend_ms 0: nothing is too old to be sent again. */
export interface Limits {
  frame: number;
  body: number;
  data: number;
  inflight: number;
  page: number;
  resend_ms: number;
}

/** The limits of the protocol's first version, until a welcome names others. */
export const LIMITS: Limits = { frame: 64 << 10, body: 16 << 10, data: 8 << 10, inflight: 256, page: 500, resend_ms: 0 };

/** What a client sends. data is JSON as it was written once: its bytes are what counts. */
export type Request =
  | { t: "hello"; token?: string; device: string; install: string; client: string }
  | { t: "send"; conv: string; cmid: string; body: string; data?: string }
  | { t: "recall"; conv: string; epoch: number; target: number; cmid: string }
  | { t: "sync"; conv: string; epoch: number; after: number; limit: number }
  | { t: "fetch" | "ack" | "read"; conv: string; epoch: number; seq: number }
  | { t: "conversations"; after?: string; limit: number }
  | { t: "outcome"; conv: string; cmid: string }
  | { t: "refresh"; token: string };

/** Writes a request. */
export function encode(request: Request, rid: string): string {
  const { t, ...rest } = request;
  if (t !== "send") return JSON.stringify({ t, rid, ...rest });
  const { data, ...message } = rest as Omit<Extract<Request, { t: "send" }>, "t">;
  const text = JSON.stringify({ t, rid, ...message });
  return data === undefined ? text : `${text.slice(0, -1)},"data":${data}}`;
}

export const PONG = '{"t":"pong"}';

/** Stands for any rid where a frame is measured before it is sent. */
const LONGEST_RID = "9007199254740991";

/** Refuses a message whose frame would be larger than the server takes: escapes make it longer than its text. */
export function checkFits(message: { conv: string; cmid: string; body: string; data?: string }, limit: number): TidingsError | undefined {
  const { conv, cmid, body, data } = message;
  const size = bytes(encode({ t: "send", conv, cmid, body, ...(data === undefined ? {} : { data }) }, LONGEST_RID));
  if (size <= limit) return undefined;
  return new TidingsError("TOO_LARGE", `the message takes ${size} bytes in a frame, at most ${limit} are allowed`);
}

/** What a server sends: a reply when it has a rid, otherwise a push. Which fields count is a matter of its type; the others are empty. */
export interface Frame {
  t: string;
  rid: string;
  conv: string;
  cmid: string;
  epoch: number;
  seq: number;
  mid: string;
  dup: boolean;
  at: number;
  head: number;
  read: number;
  unread: number;
  unread_more: boolean;
  stored: string;
  min_seq: number;
  after: number;
  events: Event[];
  withheld: Withheld[];
  trimmed: boolean;
  more: boolean;
  event?: Event;
  list: Listed[];
  code: string;
  message: string;
  retry: string;
  retry_after_ms: number;
  reconnect_after_ms: number;
  user: string;
  device: string;
  connection: string;
  now: number;
  ping_ms: number;
  limits: Partial<Limits>;
  features: string[];
}

/** What an object of the wire has: a field of always stands there or is empty, one of perhaps may be absent. The values tell their kinds. */
interface Shape {
  always: Record<string, unknown>;
  perhaps: Record<string, unknown>;
}

const EVENT: Shape = {
  always: { conv: "", seq: 0, kind: "", sender: "", at: 0 },
  perhaps: { mid: "", sdev: "", cmid: "", body: "", recalled: false, target: 0, actor: "" },
};
const LISTED: Shape = {
  always: { conv: "", epoch: 0, head: 0, min_seq: 0, delivered: 0, read: 0, unread: 0, unread_more: false, at: 0 },
  perhaps: { last: EVENT, left: false },
};
const WITHHELD: Shape = { always: { from: 0, to: 0, why: "" }, perhaps: {} };
const LIMITED: Shape = { always: {}, perhaps: { ...LIMITS } };
const FRAME: Shape = {
  always: {
    t: "", rid: "", conv: "", cmid: "", epoch: 0, seq: 0, mid: "", dup: false, at: 0, head: 0, read: 0, unread: 0, unread_more: false, stored: "",
    min_seq: 0, after: 0, events: [EVENT], withheld: [WITHHELD], trimmed: false, more: false, list: [LISTED], code: "", message: "", retry: "",
    retry_after_ms: 0, reconnect_after_ms: 0, user: "", device: "", connection: "", now: 0, ping_ms: 0, limits: LIMITED, features: [""],
  },
  perhaps: { event: EVENT },
};

/** The types of replies and pushes of this release. Of others nothing but t and rid is read. */
export const KNOWN: ReadonlySet<string> = new Set([
  "error", "welcome", "sent", "recalled", "events", "fetched", "acked", "read", "conversations", "outcome", "refreshed",
  "event", "lag", "cursor", "joined", "left", "draining", "ping",
]);

/** Reads a server's frame. Unknown fields are kept and mean nothing. Throws when it is none, or has a number that is not exact. */
export function decode(text: string): Frame {
  const raw: unknown = JSON.parse(text);
  if (!isObject(raw)) throw new Error("read a frame: it is no object");
  const t = raw["t"];
  if (typeof t !== "string" || t === "") throw new Error("read a frame: it has no type");
  const known = KNOWN.has(t) ? raw : { t, rid: typeof raw["rid"] === "string" ? raw["rid"] : "" };
  return shaped(FRAME, known, `a frame of the type ${t}`) as unknown as Frame;
}

/** The refusal that a frame carries, or undefined when it is no error. */
export function refusal(f: Frame): TidingsError | undefined {
  if (f.t !== "error") return undefined;
  return new TidingsError(f.code, f.message, { retryAfterMs: f.retry_after_ms, epoch: f.epoch, head: f.head, seq: f.seq });
}

/** Copies an object, whose known fields must be of their kinds. null counts as absent. */
function shaped(shape: Shape, raw: Record<string, unknown>, where: string): Record<string, unknown> {
  const made: Record<string, unknown> = {};
  for (const [key, kind] of Object.entries(shape.always)) made[key] = empty(kind);
  for (const [key, value] of Object.entries(raw)) {
    if (value === null) continue;
    const kind = shape.always[key] ?? shape.perhaps[key];
    made[key] = kind === undefined ? value : like(kind, value, `${key} of ${where}`);
  }
  return made;
}

function empty(kind: unknown): unknown {
  return Array.isArray(kind) ? [] : isObject(kind) ? {} : kind;
}

function like(kind: unknown, value: unknown, where: string): unknown {
  if (Array.isArray(kind) && Array.isArray(value)) return value.map((item) => like(kind[0], item, where));
  if (isObject(kind) && isObject(value)) return shaped(kind as unknown as Shape, value, where);
  if (typeof kind === "number" && Number.isSafeInteger(value)) return value;
  if (typeof kind !== "number" && typeof kind !== "object" && typeof kind === typeof value) return value;
  throw new Error(`read ${where}: ${Array.isArray(kind) ? "a list" : typeof kind === "number" ? "an integer below 2^53" : `a ${typeof kind}`} is expected`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
