// Lines: connections between tabs, which speak the protocol as a socket does. The tab with the socket is the server of the others.

import type { Socket } from "./config.js";
import type { Core, Observer } from "./core.js";
import { cursorPush, take } from "./replies.js";
import { SUBPROTOCOL } from "./wire.js";

/** What is said about a line. */
export type LineSaid = { kind: "open" | "opened" | "closed"; line: number } | { kind: "frame"; line: number; text: string };

/** The end of a line in the tab that follows. It is open when the other tab has a connection. */
export class Line implements Socket {
  readonly protocol = SUBPROTOCOL;
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;
  readonly id: number;
  asked = false;
  readonly #post: (said: LineSaid) => void;

  constructor(id: number, post: (said: LineSaid) => void) {
    this.id = id;
    this.#post = post;
  }

  /** Asks the tab that leads to take it. */
  ask(): void {
    this.asked = true;
    this.#post({ kind: "open", line: this.id });
  }

  send(text: string): void {
    this.#post({ kind: "frame", line: this.id, text });
  }

  close(): void {
    this.#post({ kind: "closed", line: this.id });
  }

  opened(): void {
    this.onopen?.({} as never);
  }

  frame(data: string): void {
    this.onmessage?.({ data } as never);
  }

  closed(): void {
    this.onclose?.({ code: 1006 } as never);
  }
}

/** A line as the tab with the socket sees it. */
interface End {
  tab: string;
  line: number;
  greeted: boolean;
}

/** The ends of all lines, in the tab that has the socket. */
export class Relay implements Observer {
  readonly #core: Core;
  readonly #post: (said: LineSaid, to: string) => void;
  readonly #ends = new Map<string, End>();
  #welcome: string | undefined; // of the connection that stands

  constructor(core: Core, post: (said: LineSaid, to: string) => void) {
    this.#core = core;
    this.#post = post;
  }

  open(tab: string, line: number): void {
    this.#ends.set(`${tab} ${line}`, { tab, line, greeted: false });
    if (this.#welcome !== undefined) this.#post({ kind: "opened", line }, tab);
  }

  closed(tab: string, line: number): void {
    this.#ends.delete(`${tab} ${line}`);
  }

  /** Takes what a tab says to the server. */
  frame(tab: string, line: number, text: string): void {
    const key = `${tab} ${line}`;
    const end = this.#ends.get(key);
    if (!end || this.#welcome === undefined) return;
    const request = JSON.parse(text) as { t: string; rid?: string };
    const answer = (reply: string): void => this.#send(end, JSON.stringify({ ...(JSON.parse(reply) as object), rid: request.rid }));
    if (request.t === "pong") return;
    if (request.t === "hello") {
      end.greeted = true;
      return answer(this.#welcome);
    }
    const queued = this.#core.queueAsk({
      encode: (rid) => JSON.stringify({ ...request, rid }),
      live: () => this.#ends.get(key) === end,
      done: (f, reply) => {
        answer(reply);
        if (f.t === "read" && this.#core.session) take(this.#core, this.#core.session, cursorPush(f)); // the other tabs are no other device
      },
    });
    if (!queued) answer(JSON.stringify({ t: "error", code: "RATE_LIMITED", message: "too many requests wait", stored: "unchanged", retry: "same" }));
  }

  online(welcome: string): void {
    this.#welcome = welcome;
    for (const end of this.#ends.values()) this.#post({ kind: "opened", line: end.line }, end.tab);
  }

  offline(): void {
    this.#welcome = undefined;
    for (const end of this.#ends.values()) this.#post({ kind: "closed", line: end.line }, end.tab);
    this.#ends.clear();
  }

  pushed(frame: string): void {
    for (const end of this.#ends.values()) if (end.greeted) this.#send(end, frame);
  }

  told(): void {}
  settled(): void {}

  #send(end: End, text: string): void {
    this.#post({ kind: "frame", line: end.line, text }, end.tab);
  }
}
