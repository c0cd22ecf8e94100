// The outbox in memory: entries and their states.

import { TidingsError } from "./errors.js";
import type { Position } from "./log.js";
import { MAX_SENT, type Sent, type StoredEntry } from "./storage.js";
import { Deferred } from "./signal.js";

/** A message of the outbox or, when it has a target, a recall. */
export interface Entry {
  conv: string;
  cmid: string;
  /** Of a message; of a recall "". */
  body: string;
  data?: Record<string, unknown>;
  /** Of a recall: where the message stands that is taken back. */
  target?: Position;
  /** When it was queued: milliseconds since 1970, by the clock of this machine. */
  at: number;
}

/**
 * An entry that waits. inDoubt tells that some transmission has no answer: the server may have the message. One that an earlier process left counts as such,
 * because nobody knows. Without it nothing of the message is stored.
 */
export interface WaitingEntry extends Entry {
  inDoubt: boolean;
}

/** The final answer to an entry. */
export interface Result {
  sent?: Sent;
  error?: Error;
}

/** An entry, and what happens to it. */
export class Item {
  readonly conv: string;
  readonly cmid: string;
  body: string;
  data: string | undefined;
  readonly target: Position | undefined;
  readonly at: number;

  order = 0;
  /** Ends when the storage has it, or has failed. */
  readonly stored = new Deferred<void>();
  /** Has the final answer. */
  readonly done = new Deferred<Result>();
  result: Result | undefined;

  /** A request about it has no answer yet. */
  flying = false;
  /** Some transmission has no answer, or the answer that it is unknown. */
  doubted = false;
  /** A refusal that counts if the server does not have it; outcome is asked first. */
  verdict: TidingsError | undefined;
  /** The application decides; why is what it was told. */
  asked: { why: TidingsError | undefined } | undefined;
  /** The application wants it sent at any age. */
  aged = false;

  constructor(e: StoredEntry) {
    this.conv = e.conv;
    this.cmid = e.cmid;
    this.body = e.body;
    this.data = e.data;
    this.target = e.target;
    this.at = e.at;
  }

  get key(): string {
    return keyOf(this.conv, this.cmid);
  }

  /** As it is kept. */
  toStored(): StoredEntry {
    const { conv, cmid, body, data, target, at } = this;
    return { conv, cmid, body, at, ...(data === undefined ? {} : { data }), ...(target ? { target } : {}) };
  }

  /** As the application sees it. */
  toEntry(): Entry {
    const { data, ...entry } = this.toStored();
    return data === undefined ? entry : { ...entry, data: JSON.parse(data) as Record<string, unknown> };
  }

  /** Lets it be sent again by the application's will. */
  resume(): void {
    this.asked = undefined;
    this.verdict = undefined;
    this.aged = true;
  }
}

/** Ids have no spaces. */
export function keyOf(conv: string, cmid: string): string {
  return `${conv} ${cmid}`;
}

/** What is to be sent, and the newest of what was. */
export class Outbox {
  readonly waiting = new Map<string, Item>(); // in the order in which they were queued
  readonly sent = new Map<string, Item>(); // oldest first
  /** Ended, and the application does not know yet. */
  untold = 0;
  #orders = 0;

  /** Takes an entry in. fresh is false when it is there already, waiting or sent. */
  add(e: StoredEntry, limit: number): { item: Item; fresh: boolean } {
    const key = keyOf(e.conv, e.cmid);
    const had = this.waiting.get(key) ?? this.sent.get(key);
    if (had) {
      const same = had.body === e.body && had.data === e.data && had.target?.seq === e.target?.seq && had.target?.epoch === e.target?.epoch;
      if (!same) throw new TidingsError("IDEMPOTENCY_MISMATCH", `something else has the cmid ${e.cmid}`);
      return { item: had, fresh: false };
    }
    if (this.waiting.size + this.untold >= limit) throw new TidingsError("RATE_LIMITED", `the outbox is full: ${limit} entries wait`);
    const item = new Item(e);
    this.put(item);
    return { item, fresh: true };
  }

  put(item: Item): void {
    item.order = ++this.#orders;
    this.waiting.set(item.key, item);
  }

  waits(item: Item): boolean {
    return this.waiting.get(item.key) === item;
  }

  forget(item: Item): void {
    if (this.waits(item)) this.waiting.delete(item.key);
  }

  /** Remembers a message that was sent. */
  keep(item: Item): void {
    this.forget(item);
    this.sent.delete(item.key); // so that it is the newest
    this.sent.set(item.key, item);
    for (const old of this.sent.values()) {
      if (this.sent.size <= MAX_SENT) break;
      this.unkeep(old);
    }
  }

  remembers(item: Item): boolean {
    return this.sent.get(item.key) === item;
  }

  unkeep(item: Item): void {
    if (this.remembers(item)) this.sent.delete(item.key);
  }

  /** The remembered messages of a conversation which were stored in another history than epoch. */
  sentTo(conv: string, epoch: number): Item[] {
    return [...this.sent.values()].filter((item) => item.conv === conv && item.result?.sent?.epoch !== epoch);
  }
}
