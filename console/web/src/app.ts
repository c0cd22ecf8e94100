// The demo page: two people with two devices each, or with ?device=… one device alone.

import { Card, type Around } from "./card.js";
import * as dev from "./dev.js";
import { Device } from "./device.js";
import { byId, el, setText } from "./dom.js";
import { Notifications } from "./notify.js";
import { Tally } from "./tally.js";
import { Trouble } from "./trouble.js";

const POLL_MS = 1000;

/** Everything on the page. */
class Page implements Around {
  readonly #devices: Device[] = [];
  readonly #cards: Card[] = [];
  readonly #names = new Map<string, string>();
  readonly #tally: Tally;
  readonly #trouble: Trouble;
  readonly #notifications: Notifications;
  #state: dev.DevState;
  #painting = false;

  constructor(state: dev.DevState, only: string | null) {
    this.#state = state;
    const people = byId("people");
    people.replaceChildren();
    for (const person of state.people) {
      this.#names.set(person.user, person.name);
      const mine = person.devices.filter((d) => only === null || d.device === only).map((info) => new Device(info, person, state.conv, () => this.#paintSoon()));
      if (mine.length === 0) continue;
      const cards = mine.map((d) => new Card(d, this));
      this.#devices.push(...mine);
      this.#cards.push(...cards);
      people.append(el("section", { class: "person", "aria-label": person.name, "data-user": person.user }, el("h2", {}, person.name), el("div", { class: "devices" }, ...cards.map((c) => c.node))));
    }
    document.body.classList.toggle("alone", only !== null);
    byId("whole").hidden = only === null;
    if (this.#devices.length === 0) this.say(`There is no device ${only ?? ""}. There are: ${state.people.flatMap((p) => p.devices.map((d) => d.device)).join(", ")}.`);
    this.#tally = new Tally(this.#devices);
    this.#trouble = new Trouble((what) => this.attempt(what));
    this.#notifications = new Notifications((what) => this.attempt(what));
    this.#links();
    this.#take(state);
  }

  /** Opens the clients, and looks at the server's state from now on. */
  async run(): Promise<void> {
    for (const d of this.#devices) d.open().catch((err: unknown) => this.say(`${d.info.device} cannot be opened: ${text(err)}`));
    setInterval(() => this.#paintSoon(), POLL_MS); // seconds count down
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      if (document.hidden) continue;
      await this.#refresh().catch((err: unknown) => this.say(`The server does not answer: ${text(err)}`, true));
      if (!document.body.classList.contains("alone") && this.#state.busy !== "restore") await this.#notifications.poll().catch(() => {}); // while the database is away there is nothing to see
    }
  }

  reads(epoch: number): Map<string, number> {
    const reads = new Map<string, number>();
    for (const { person, read } of this.#devices) {
      if (read.seq > 0 && read.epoch === epoch) reads.set(person.user, Math.max(read.seq, reads.get(person.user) ?? 0));
    }
    return reads;
  }

  name(user: string): string {
    return this.#names.get(user) ?? user;
  }

  change(device: Device, change: dev.LineChange): void {
    this.attempt(async () => {
      await dev.changeLine(device.info.device, change);
      if (change.online === true) device.reconnect(); // as a phone does that finds its network again
    });
  }

  attempt(what: () => Promise<unknown>): void {
    this.say("");
    what().then(() => this.#refresh()).catch((err: unknown) => this.say(text(err)));
  }

  /** Says something above everything. What is said of the server's silence goes when it speaks. */
  say(message: string, silence = false): void {
    const status = byId("status");
    setText(status, message);
    status.dataset["silence"] = String(silence && message !== "");
  }

  async #refresh(): Promise<void> {
    this.#take(await dev.state());
    if (byId("status").dataset["silence"] === "true") this.say("");
  }

  #take(state: dev.DevState): void {
    this.#state = state;
    for (const d of this.#devices) d.renew(state);
    for (const c of this.#cards) c.line(state);
    this.#trouble.paint(state);
    this.#notifications.paint(state);
    this.#paintSoon();
  }

  #links(): void {
    const all = this.#state.people.flatMap((p) => p.devices.map((d) => ({ device: d.device, label: `${p.name}’s ${d.kind}` })));
    byId("alone-links").append(...all.flatMap(({ device, label }, i) => [i > 0 ? ", " : "", el("a", { href: `/?device=${encodeURIComponent(device)}` }, label)]));
  }

  /** Paints once, however much happens in this turn. */
  #paintSoon(): void {
    if (this.#painting) return;
    this.#painting = true;
    setTimeout(() => {
      this.#painting = false;
      for (const c of this.#cards) c.paint();
      this.#tally.paint();
    });
  }
}

function text(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}

/** Waits for the server, and shows the page. */
async function start(): Promise<void> {
  const only = new URLSearchParams(location.search).get("device");
  for (;;) {
    try {
      return await new Page(await dev.state(), only).run();
    } catch (err) {
      setText(byId("status"), `tidings dev does not answer: ${text(err)}`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}

void start();
