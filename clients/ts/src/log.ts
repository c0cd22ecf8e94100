// The copy of a log: merge, holes, epochs.

import type { Event, Withheld } from "./wire.js";

/** A place in one history of a log: everything up to seq is known. Epoch and seq 0 are the beginning. */
export interface Position {
  epoch: number;
  seq: number;
}

/** How many events that came too early a log keeps. Those beyond come again with a sync. */
const MAX_AHEAD = 512;

/** An event, or a range that is withheld. The pieces of a run follow each other without a hole. */
export interface Piece {
  from: number;
  to: number;
  /** Of a range. */
  why?: string;
  event?: Event;
}

/** The copy of one history of a conversation's log. Events are merged into it in any order and any number of times. */
export class Log {
  epoch: number;
  /** Every seq up to it is in the run, or was, or was known before. */
  cursor: number;
  /** The greatest seq that is expected; sync until the cursor is there. */
  head: number;
  run: Piece[] = [];
  readonly #ahead = new Map<number, Event>(); // beyond a hole
  readonly #voided = new Set<number>(); // beyond the cursor, recalled, and not here yet

  constructor(at: Position) {
    this.epoch = at.epoch;
    this.cursor = at.seq;
    this.head = at.seq;
  }

  /** Merges an event. Returns the seqs at or below the cursor of before whose content is gone by it. */
  add(event: Event): number[] {
    const recalled: number[] = [];
    const drop = event.seq > this.cursor + 1 && !this.#ahead.has(event.seq) && this.#ahead.size >= MAX_AHEAD; // it comes again
    const target = event.kind === "recall" ? (event.target ?? 0) : 0;
    if (target > 0 && target < event.seq && !(drop && target > this.cursor)) recalled.push(...this.#void(target));
    this.head = Math.max(this.head, event.seq);
    if (event.seq <= this.cursor) {
      if (event.recalled) recalled.push(...this.#void(event.seq));
      return recalled;
    }
    if (this.#voided.has(event.seq)) event = stripped(event);
    const had = this.#ahead.get(event.seq);
    if (drop || (had && (had.recalled || !event.recalled))) return recalled;
    this.#ahead.set(event.seq, event);
    this.#advance();
    return recalled;
  }

  /** The event at seq, wherever it is. */
  at(seq: number): Event | undefined {
    return this.#ahead.get(seq) ?? this.find(seq)?.event;
  }

  /** Tells whether it is known that the event at seq was recalled. */
  recalled(seq: number): boolean {
    return this.#voided.has(seq) || this.at(seq)?.recalled === true;
  }

  /** Takes the content of the event at seq, now or when it comes. */
  #void(seq: number): number[] {
    if (seq > this.cursor) {
      this.#voided.add(seq);
      const early = this.#ahead.get(seq);
      if (early) this.#ahead.set(seq, stripped(early));
      return [];
    }
    const piece = this.find(seq);
    if (!piece?.event || piece.event.recalled) return [];
    piece.event = stripped(piece.event); // a copy: the application may have the other one
    return [seq];
  }

  /** Merges the answer to a sync. ok tells whether the page continues the run; one that does not is useless. */
  page(after: number, events: readonly Event[], withheld: readonly Withheld[]): { recalled: number[]; ok: boolean } {
    const recalled: number[] = [];
    if (after > this.cursor) return { recalled, ok: false };
    let e = 0;
    let w = 0;
    while (e < events.length || w < withheld.length) {
      const event = events[e];
      const range = withheld[w];
      if (range && (!event || range.from < event.seq)) {
        w++;
        if (range.from > this.cursor + 1) return { recalled, ok: false };
        this.#withhold(range);
      } else if (event) {
        e++;
        if (event.seq > this.cursor + 1) return { recalled, ok: false };
        recalled.push(...this.add(event));
      }
    }
    return { recalled, ok: true };
  }

  /** Takes a range as known that begins at the cursor or before. */
  #withhold(range: Withheld): void {
    if (range.to <= this.cursor) return;
    for (const seq of this.#ahead.keys()) if (seq <= range.to) this.#ahead.delete(seq);
    for (const seq of this.#voided) if (seq <= range.to) this.#voided.delete(seq);
    this.run.push({ from: this.cursor + 1, to: range.to, why: range.why });
    this.cursor = range.to;
    this.head = Math.max(this.head, range.to);
    this.#advance();
  }

  /** Moves the cursor over what came early. */
  #advance(): void {
    for (;;) {
      const event = this.#ahead.get(this.cursor + 1);
      if (!event) return;
      this.cursor++;
      this.#ahead.delete(event.seq);
      this.#voided.delete(event.seq);
      this.run.push({ from: event.seq, to: event.seq, event });
    }
  }

  /** The number of seqs to ask for: up to the first event beyond the hole, or up to the head. */
  gap(): number {
    return Math.min(this.head + 1, ...this.#ahead.keys()) - this.cursor - 1;
  }

  /** Sets the head to what an answer to a sync said that came to the end, and to what was heard of since it was asked for. */
  complete(head: number, heard: number): void {
    this.head = Math.max(head, heard, this.cursor, ...this.#ahead.keys());
  }

  /** The piece that has seq. */
  find(seq: number): Piece | undefined {
    const piece = this.run[this.#index(seq)];
    return piece && piece.from <= seq ? piece : undefined;
  }

  /** The index of the first piece that ends at seq or later. */
  #index(seq: number): number {
    let low = 0;
    let high = this.run.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.run[middle] as Piece).to >= seq) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** At most limit events of the run, beginning at from. */
  events(from: number, limit: number): Event[] {
    const list: Event[] = [];
    for (let i = this.#index(from); i < this.run.length && list.length < limit; i++) {
      const event = this.run[i]?.event;
      if (event) list.push(event);
    }
    return list;
  }

  /** Keeps of the pieces up to seq only the last ones. It waits until there is much to gain. */
  forget(seq: number, keep: number): void {
    const old = this.#index(seq + 1) - keep;
    if (old > keep / 2 + 16) this.run = this.run.slice(old);
  }
}

function stripped(event: Event): Event {
  const { body: _, data: __, ...rest } = event;
  return { ...rest, recalled: true };
}
