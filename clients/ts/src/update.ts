// What the application is told.

import type { Entry } from "./outbox.js";
import type { Sent } from "./storage.js";
import type { Event } from "./wire.js";

/** The state of the connection has changed; of several changes that waited only the newest is told. */
export interface Connection {
  type: "connection";
  /** A client that is stopped stays so until {@link Client.reconnect}. */
  state: "offline" | "online" | "stopped";
  /** Why it is not online. */
  error?: Error;
  /** Of offline: milliseconds until the next attempt. */
  retryMs?: number;
  /** Of the close frame, if one came. */
  code?: number;
}

/** The next event of a conversation. Its kind may be one that the application does not know: it counts, and is not shown. */
export interface Arrived {
  type: "arrived";
  conv: string;
  epoch: number;
  event: Event;
}

/** A range of seqs, both ends inclusive, that the user does not get: "trimmed", "not_member", or what a later server says. */
export interface WithheldRange {
  type: "withheld";
  conv: string;
  epoch: number;
  from: number;
  to: number;
  why: string;
}

/** An event that has arrived before has lost its content: show it no longer. Told as long as memory holds the event. */
export interface Recalled {
  type: "recalled";
  conv: string;
  epoch: number;
  event: Event;
}

/** The log has another history: what was known is void, and everything arrives again. With an error there is nothing to arrive. */
export interface Dropped {
  type: "dropped";
  conv: string;
  epoch: number;
  error?: Error;
}

/** The final answer to an entry of the outbox, also to one of an earlier process: sent, or the refusal. */
export interface Ended {
  type: "ended";
  entry: Entry;
  sent?: Sent;
  error?: Error;
}

/** An entry is not sent until the application calls resend or discard: it is too old (no error), or was refused in a way that is not final. */
export interface Asked {
  type: "asked";
  entry: Entry;
  error?: Error;
}

/** A message of this device that was stored is not in the new history. It is not sent again by itself. */
export interface Lost {
  type: "lost";
  entry: Entry;
  sent: Sent;
}

/** How far the user has read, on whichever device, and how many messages after that are unread; more: or more. */
export interface ReadMoved {
  type: "read_moved";
  conv: string;
  epoch: number;
  seq: number;
  unread: number;
  more: boolean;
}

/** What Config.handle gets. An application ignores types that it does not know. */
export type Update = Connection | Arrived | WithheldRange | Recalled | Dropped | Ended | Asked | Lost | ReadMoved;
