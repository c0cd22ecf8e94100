// What keeps the outbox when the process ends.

import type { Position } from "./log.js";

/** A message or, with a target, a recall, as it is kept. */
export interface StoredEntry {
  conv: string;
  cmid: string;
  body: string;
  /** JSON as it was written once. */
  data?: string;
  /** Of a recall: where the message stands. */
  target?: Position;
  /** When it was queued: milliseconds since 1970, by the clock of this machine. */
  at: number;
}

/** What the server says of a message that is stored, or of a recall. */
export interface Sent {
  /** Of the event; 0 for a recall whose message the server no longer had. */
  seq: number;
  /** Empty when it was learned by a question, and for a recall; so is at. */
  mid: string;
  epoch: number;
  /** Milliseconds since 1970 by the database's clock. */
  at: number;
  /** An earlier transmission had stored it. */
  dup: boolean;
}

/** A message that was sent. */
export interface StoredSent {
  entry: StoredEntry;
  sent: Sent;
}

/** What a storage has. */
export interface Stored {
  /** This installation: an id. */
  install: string;
  /** Whose outbox it is; empty before the first connection. */
  user: string;
  /** What is to be sent, in the order in which it was queued. */
  waiting: StoredEntry[];
  /** The newest of what was sent, oldest first: at least {@link MAX_SENT}. */
  sent: StoredSent[];
}

/** How many messages that were sent are remembered, so that it is noticed when a restore loses them. */
export const MAX_SENT = 1000;

/** One thing to remember. erase is an end after which the content must not be found in the storage any more: it was recalled. */
export type Change =
  | { op: "user"; user: string }
  | { op: "queue"; entry: StoredEntry }
  | { op: "sent"; entry: StoredEntry; sent: Sent }
  | { op: "end" | "erase"; conv: string; cmid: string };

/**
 * Where the outbox outlives the process: IndexedDB in browsers, a file in Node.
 *
 * Of each entry (conv, cmid) the last change counts. Changes are applied in the order of the calls, and their promises end in that order.
 */
export interface Storage {
  /**
   * Opens or makes the storage of a device, and says what it has. Without an install it remembers one of its own. Fails when it belongs to another device or
   * installation, or is open elsewhere.
   */
  open(device: string, install: string): Promise<Stored>;
  /**
   * Applies a change. A queue is on the disk when the promise is fulfilled; any other may be lost, which costs a repetition. A storage that cannot tell what it has
   * after a failure refuses every later change.
   */
  write(change: Change): Promise<void>;
  /** Waits for what was written, and lets go. */
  close(): Promise<void>;
}

/** A random id. */
export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
