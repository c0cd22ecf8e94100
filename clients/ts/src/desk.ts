// The outbox as the calls of the application see it: here, or in the tab that has it.

import type { Core } from "./core.js";
import { ClosedError, DiscardedError } from "./errors.js";
import type { Result, WaitingEntry } from "./outbox.js";
import type { StoredEntry } from "./storage.js";

/** What can be done with the outbox, wherever it is. */
export interface Desk {
  /** Puts an entry in. It returns when the entry is safe there: with its final answer, if it has one already. */
  enter(entry: StoredEntry): Promise<Result | undefined>;
  waiting(): Promise<WaitingEntry[]>;
  resend(conv: string, cmid: string): Promise<void>;
  discard(conv: string, cmid: string): Promise<void>;
  /** Waits until there is nothing that could be sent. */
  flush(): Promise<void>;
  reconnect(): Promise<void>;
}

/** The outbox of this client. */
export class OwnDesk implements Desk {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  async enter(entry: StoredEntry): Promise<Result | undefined> {
    return (await this.#core.enter(entry)).result;
  }

  async waiting(): Promise<WaitingEntry[]> {
    return [...this.#core.box.waiting.values()].map((item) => ({ ...item.toEntry(), inDoubt: item.doubted || item.flying }));
  }

  async resend(conv: string, cmid: string): Promise<void> {
    const item = this.#core.box.waiting.get(`${conv} ${cmid}`);
    if (!item?.asked) return;
    item.resume();
    this.#core.look(this.#core.conversation(conv));
  }

  async discard(conv: string, cmid: string): Promise<void> {
    const item = this.#core.box.waiting.get(`${conv} ${cmid}`);
    if (!item) return;
    this.#core.conversation(conv).dequeue(item);
    this.#core.box.forget(item);
    this.#core.settle(item, { error: new DiscardedError() });
    await this.#core.storage?.write({ op: "end", conv, cmid });
  }

  async flush(): Promise<void> {
    for (;;) {
      if (this.#core.closed) throw new ClosedError();
      const open = [...this.#core.box.waiting.values()].find((item) => !item.asked);
      if (!open) return;
      await open.done.promise;
    }
  }

  async reconnect(): Promise<void> {
    this.#core.again.set();
  }
}
