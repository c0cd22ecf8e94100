// An observer of one device's sockets: what really went over the wire, beside what the client makes of it.

import type { Event } from "../../../clients/ts/src/index.js";

/** What an observer has counted. */
export interface Seen {
  /** Messages and recalls that were transmitted again, under the cmid of before. */
  resends: number;
  /** Events that were pushed although they had come before. */
  repeats: number;
  /** Times when something spoke of an event that was not here yet, and the hole was filled. */
  gaps: number;
}

/** The frames that say something about the log. Which fields there are is a matter of t. */
interface Frame {
  t?: string;
  cmid?: string;
  conv?: string;
  epoch?: number;
  head?: number;
  after?: number;
  event?: Event;
  events?: Event[];
  withheld?: { from: number; to: number }[];
  list?: { conv: string; epoch: number; head: number }[];
  reconnect_after_ms?: number;
}

/** Watches the sockets of one device, from the page's start on. It changes nothing. */
export class Watch {
  readonly seen: Seen = { resends: 0, repeats: 0, gaps: 0 };
  /** The socket is in this page, not in another tab of the device. */
  here = false;
  readonly #conv: string;
  readonly #changed: (drain?: number) => void;
  readonly #transmitted = new Set<string>();
  #epoch = 0;
  #cursor = 0; // everything up to it has come
  #ahead = new Set<number>();
  #missing = 0; // the hole that was heard of ends before or at this seq; 0: there is none

  /** changed is called after each frame; drain: the gateway stops in so many milliseconds. */
  constructor(conv: string, changed: (drain?: number) => void) {
    this.#conv = conv;
    this.#changed = changed;
  }

  /** The class of sockets that the client shall use. */
  get socket(): typeof WebSocket {
    const sent = (text: string): void => this.#sent(JSON.parse(text) as Frame);
    const came = (text: string): void => this.#came(JSON.parse(text) as Frame);
    const opened = (): void => void (this.here = true);
    return class extends WebSocket {
      constructor(url: string | URL, protocols?: string | string[]) {
        super(url, protocols);
        opened();
        this.addEventListener("message", (e) => typeof e.data === "string" && came(e.data));
      }

      override send(data: string): void {
        sent(data);
        super.send(data);
      }
    };
  }

  #sent(f: Frame): void {
    if ((f.t === "send" || f.t === "recall") && f.cmid) {
      if (this.#transmitted.has(f.cmid)) this.seen.resends++;
      this.#transmitted.add(f.cmid);
    }
    this.#changed();
  }

  #came(f: Frame): void {
    if (f.t === "event" && f.event?.conv === this.#conv) this.#pushed(f.epoch ?? 0, f.event.seq);
    if (f.t === "events" && f.conv === this.#conv) this.#page(f);
    if (f.t === "lag" && f.conv === this.#conv) this.#heard(f.epoch ?? 0, f.head ?? 0);
    for (const l of f.t === "conversations" ? (f.list ?? []) : []) if (l.conv === this.#conv) this.#heard(l.epoch, l.head);
    this.#changed(f.t === "draining" ? f.reconnect_after_ms : undefined);
  }

  #pushed(epoch: number, seq: number): void {
    if (epoch !== this.#epoch) return; // the pages of the new history come first
    if (seq <= this.#cursor || this.#ahead.has(seq)) {
      this.seen.repeats++;
      return;
    }
    this.#ahead.add(seq);
    if (seq > this.#cursor + 1) this.#missing = Math.max(this.#missing, seq - 1);
    this.#advance();
  }

  /** Something tells how long the log is. */
  #heard(epoch: number, head: number): void {
    if (epoch === this.#epoch && head > this.#cursor) this.#missing = Math.max(this.#missing, head);
  }

  #page(f: Frame): void {
    const { epoch = 0, after = 0, events = [], withheld = [] } = f;
    if (epoch !== this.#epoch) {
      this.#epoch = epoch;
      this.#cursor = this.#missing = 0;
      this.#ahead.clear();
    }
    if (after > this.#cursor) return;
    this.#cursor = Math.max(this.#cursor, ...events.map((e) => e.seq), ...withheld.map((w) => w.to));
    this.#advance();
  }

  #advance(): void {
    for (const seq of this.#ahead) if (seq <= this.#cursor) this.#ahead.delete(seq);
    while (this.#ahead.delete(this.#cursor + 1)) this.#cursor++;
    if (this.#missing > 0 && this.#cursor >= this.#missing) {
      this.#missing = 0;
      this.seen.gaps++;
    }
  }
}
