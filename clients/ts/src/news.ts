// The one ordered stream of news to the application.

import type { Conversation } from "./conversation.js";
import type { Core } from "./core.js";
import { Signal } from "./signal.js";
import type { Update } from "./update.js";

/** Something to tell; what may change until it is told is looked up then. */
type Item = { log: Conversation } | { read: Conversation } | { update: Update } | { state: true };

/** Something to tell now, and what follows when it was told. */
interface Next {
  update: Update;
  done?: () => void;
}

/**
 * What the application has to hear, in order. It is bounded by what it speaks of: the connection is in it once, a conversation once with its log and once with
 * its read cursor, and messages are counted by Config.maxOutbox.
 */
export class News {
  readonly #core: Core;
  readonly #signal = new Signal();
  #list: Item[] = [];
  #inState = false;
  #closed = false;

  constructor(core: Core) {
    this.#core = core;
  }

  tell(update: Update): void {
    this.#push({ update });
  }

  log(v: Conversation): void {
    if (v.inNews || !this.#core.cfg.handle) return;
    v.inNews = true;
    this.#push({ log: v });
  }

  read(v: Conversation): void {
    if (v.movedInNews || !this.#core.cfg.handle) return;
    v.movedInNews = true;
    this.#push({ read: v });
  }

  stateChanged(): void {
    if (this.#inState || !this.#core.cfg.handle) return;
    this.#inState = true;
    this.#push({ state: true });
  }

  /** Takes the content of a message that was recalled from what is not told yet. */
  empty(conv: string, cmid: string): void {
    for (const item of this.#list) {
      if (!("update" in item) || item.update.type !== "ended") continue;
      const { entry } = item.update;
      if (entry.conv !== conv || entry.cmid !== cmid) continue;
      const { data: _, ...rest } = entry;
      item.update = { ...item.update, entry: { ...rest, body: "" } };
    }
  }

  close(): void {
    this.#closed = true;
    this.#signal.set();
  }

  /** Calls the application until the client is closed. */
  async deliver(): Promise<void> {
    const { handle } = this.#core.cfg;
    while (handle && !this.#closed) {
      const next = this.#next();
      if (!next) {
        await this.#signal.wait();
        continue;
      }
      try {
        await handle(next.update);
      } catch (err) {
        queueMicrotask(() => { // seen as any other error that nobody catches; the update counts as told
          throw err;
        });
      }
      next.done?.();
    }
  }

  #push(item: Item): void {
    if (!this.#core.cfg.handle) return;
    this.#list.push(item);
    this.#signal.set();
  }

  #next(): Next | undefined {
    for (;;) {
      const item = this.#list[0];
      if (!item) return undefined;
      if ("log" in item) {
        const next = this.#ofLog(item.log);
        if (next) return next;
        item.log.inNews = false;
      }
      this.#list.shift();
      if ("read" in item) {
        item.read.movedInNews = false;
        return { update: item.read.moved };
      }
      if ("state" in item) {
        this.#inState = false;
        return { update: this.#core.state };
      }
      if ("update" in item) {
        const { update } = item;
        return update.type === "ended" ? { update, done: () => this.#core.box.untold-- } : { update };
      }
    }
  }

  /** The next thing to tell of a log. */
  #ofLog(v: Conversation): Next | undefined {
    const { log, conv } = v;
    const { epoch } = log;
    if (v.dropped) {
      v.dropped = false;
      return { update: { type: "dropped", conv, epoch } };
    }
    for (let seq = v.recalls.shift(); seq !== undefined; seq = v.recalls.shift()) {
      const event = log.find(seq)?.event;
      if (event) return { update: { type: "recalled", conv, epoch, event } };
    }
    const piece = log.find(v.told + 1);
    if (!piece) return undefined;
    const { to } = piece;
    v.telling = to;
    const done = (): void => {
      if (v.log !== log || v.told >= to) return; // it was told of a history that is no more
      v.told = to;
      log.forget(to, this.#core.cfg.keep);
      this.#core.look(v);
    };
    if (piece.event) return { update: { type: "arrived", conv, epoch, event: piece.event }, done };
    return { update: { type: "withheld", conv, epoch, from: Math.max(piece.from, v.told + 1), to, why: piece.why ?? "" }, done };
  }
}
