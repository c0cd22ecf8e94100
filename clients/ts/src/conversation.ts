// What the client knows of one conversation, and has to do for it.

import type { TidingsError } from "./errors.js";
import { Log, type Position } from "./log.js";
import type { Item } from "./outbox.js";
import type { Deferred } from "./signal.js";
import type { ReadMoved } from "./update.js";

/** What the client knows of one conversation, and has to do for it. Times are of {@link now}. */
export class Conversation {
  readonly conv: string;
  follow = false;
  /** The server does not know us as a member; a joined begins anew. */
  away = false;

  log = new Log({ epoch: 0, seq: 0 });
  /** How far the application has had the log, and what it is having. */
  told = 0;
  telling = 0;
  /** It has to hear of the new history, and of these recalls. */
  dropped = false;
  recalls: number[] = [];
  inNews = false;

  /** Nothing is known of this history yet. */
  unsynced = false;
  /** Something spoke of another history. */
  doubt = false;
  /** A sync has no answer. */
  syncing = false;
  /** What was spoken of since it was sent, and what its answer may not know of yet: the greatest seq of each history. */
  readonly heard = new Map<number, number>();
  syncTries = 0;
  syncAt = 0;
  /** Calls of sync that no request was sent for yet, and those that one was sent for. */
  waiters: Deferred<void>[] = [];
  served: Deferred<void>[] = [];

  /** What is to be sent, in order: recalls first. */
  queue: Item[] = [];
  /** Of it, how many are under way. */
  flying = 0;
  sendTries = 0;
  sendAt = 0;
  /** Nothing is sent until everything under way is answered. */
  hold = false;
  /** Sent messages that may be gone. */
  suspects: Item[] = [];

  /** The server knows. */
  acked = 0;
  acking = false;
  ackedAt = -Infinity;

  wantRead = 0;
  read = 0;
  reading = false;
  moved: ReadMoved;
  movedInNews = false;

  constructor(conv: string) {
    this.conv = conv;
    this.moved = { type: "read_moved", conv, epoch: 0, seq: 0, unread: 0, more: false };
  }

  followFrom(at: Position): void {
    this.follow = true;
    this.away = false;
    this.unsynced = true;
    this.log = new Log(at);
    this.told = at.seq;
    this.telling = 0;
  }

  /** Notes that seq was spoken of in the history epoch. */
  hear(epoch: number, seq: number): void {
    this.heard.set(epoch, Math.max(this.heard.get(epoch) ?? 0, seq));
  }

  /** Puts an entry into the queue. A recall, whose time is short, does not wait behind messages. */
  enqueue(item: Item): void {
    const at = item.target ? this.queue.findIndex((other) => !other.target) : -1;
    this.queue.splice(at < 0 ? this.queue.length : at, 0, item);
  }

  dequeue(item: Item): void {
    const at = this.queue.indexOf(item);
    if (at >= 0) this.queue.splice(at, 1);
  }

  fly(item: Item): void {
    item.flying = true;
    this.flying++;
  }

  land(item: Item): void {
    if (!item.flying) return;
    item.flying = false;
    this.flying--;
  }

  addSuspects(items: Iterable<Item>): void {
    for (const item of items) if (!this.suspects.includes(item)) this.suspects.push(item);
  }

  /** Ends the wait of those who asked for a sync. */
  answer(err?: TidingsError): void {
    for (const w of this.served.splice(0)) {
      if (err) w.reject(err);
      else w.resolve();
    }
  }
}
