// One device of the demo: a client of its own, and what it was told.

import { Client, codeOf, type Connection, type Ended, type Event, type Lost, type Update, type WaitingEntry } from "../../../clients/ts/src/index.js";
import type { DeviceInfo, DevState, Person } from "./dev.js";
import { Watch } from "./wire.js";

/** How much of a log is kept to be shown. */
const MAX_SHOWN = 500;

/** All browsers that show a device count as one installation of it: the device can go from one to the other and back, which from a newer installation it cannot. */
const INSTALL = "demo-page";

/** A piece of the log: an event, or a range that the user does not get. */
export type Piece = { from: number; to: number; event?: Event; why?: string };

/** What a device was told, in numbers. */
export interface Told {
  /** Answers that said: an earlier transmission had stored it. */
  dups: number;
  /** Events that were told twice, or not in the order of the log. It has to stay 0. */
  wrong: number;
  epochs: number;
  lost: number;
}

/** Something the person should see until it is dismissed. */
export interface Notice {
  key: string;
  text: string;
  /** A message that a restore has lost. */
  lost?: Lost;
}

export class Device {
  readonly info: DeviceInfo;
  readonly person: Person;
  readonly conv: string;
  readonly watch: Watch;
  readonly told: Told = { dups: 0, wrong: 0, epochs: 0, lost: 0 };

  connection: Connection = { type: "connection", state: "offline" };
  /** When the client connects again: milliseconds since 1970, of offline. */
  retryAt = 0;
  /** When the gateway of this connection stops; 0: nothing was said. */
  drainAt = 0;
  epoch = 0;
  pieces: Piece[] = [];
  read = { epoch: 0, seq: 0 };
  waiting: WaitingEntry[] = [];
  notices: Notice[] = [];
  /** The cmids of own messages that were sent again, and of which the server said: stored already. */
  readonly recognised = new Set<string>();
  /** Why entries wait for the person's decision, by cmid. */
  readonly asked = new Map<string, string>();

  readonly #changed: () => void;
  #client: Client | undefined;
  #token: string;
  #next = 1; // the seq that has to be told next
  #notices = 0;
  #looking = false;
  #lookAgain = false;

  /** changed is called whenever something here is different. */
  constructor(info: DeviceInfo, person: Person, conv: string, changed: () => void) {
    this.info = info;
    this.person = person;
    this.conv = conv;
    this.#token = person.token;
    this.#changed = changed;
    this.watch = new Watch(conv, (drain) => {
      if (drain !== undefined) this.drainAt = Date.now() + drain;
      void this.#look();
    });
  }

  /** Loads what an earlier page left in the outbox, and begins to connect. */
  async open(): Promise<void> {
    const url = location.origin.replace(/^http/, "ws") + `${this.info.line}/v1/ws`;
    this.#client = await Client.open({
      url, device: this.info.device, name: "tidings-demo", install: INSTALL, outbox: `tidings-page-${this.info.device}`, token: () => ({ text: this.#token }),
      handle: (u) => this.#handle(u), webSocket: this.watch.socket, backoffMinMs: 300, backoffMaxMs: 3000, requestTimeoutMs: 10_000,
    });
    await this.#look();
  }

  /** Takes a newer token from what the server says of itself. */
  renew(state: DevState): void {
    this.#token = state.people.find((p) => p.user === this.person.user)?.token ?? this.#token;
  }

  get head(): number {
    return this.pieces.at(-1)?.to ?? 0;
  }

  /** The messages of others that are kept here and are not read. */
  get unread(): number {
    const from = this.read.epoch === this.epoch ? this.read.seq : 0;
    return this.pieces.filter(({ event: e }) => e && e.kind === "msg" && e.seq > from && e.sender !== this.person.user && !e.recalled).length;
  }

  async send(body: string): Promise<void> {
    await this.#need().send({ conv: this.conv, body });
    await this.#look();
  }

  async recall(seq: number): Promise<void> {
    await this.#need().recall({ conv: this.conv, target: { seq, epoch: this.epoch } });
    await this.#look();
  }

  markRead(): void {
    if (this.head > 0) this.#need().markRead(this.conv, this.head);
  }

  reconnect(): void {
    this.#client?.reconnect();
  }

  async resend(cmid: string): Promise<void> {
    this.asked.delete(cmid);
    await this.#need().resend(this.conv, cmid);
    await this.#look();
  }

  async discard(cmid: string): Promise<void> {
    this.asked.delete(cmid);
    await this.#need().discard(this.conv, cmid);
    await this.#look();
  }

  /** Sends a lost message again, as the message that it was: should the log have it after all, it stays one. */
  async sendLost(notice: Notice): Promise<void> {
    this.dismiss(notice);
    if (notice.lost) await this.#need().send({ conv: this.conv, cmid: notice.lost.entry.cmid, body: notice.lost.entry.body });
    await this.#look();
  }

  dismiss(notice: Notice): void {
    this.notices = this.notices.filter((n) => n !== notice);
    this.#changed();
  }

  #need(): Client {
    if (!this.#client) throw new Error(`${this.info.device} is not open yet`);
    return this.#client;
  }

  /** Looks what the outbox has; once more if something happens meanwhile. */
  async #look(): Promise<void> {
    this.#changed();
    if (!this.#client) return;
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    try {
      while (this.#lookAgain) {
        this.#lookAgain = false;
        this.waiting = (await this.#client.waiting()).filter((e) => e.conv === this.conv);
      }
    } finally {
      this.#looking = false;
      this.#changed();
    }
  }

  #handle(u: Update): void {
    if (u.type === "connection") this.#connection(u);
    else if ("conv" in u ? u.conv === this.conv : u.entry.conv === this.conv) this.#news(u);
    void this.#look();
  }

  #connection(u: Connection): void {
    this.connection = u;
    this.retryAt = u.state === "offline" ? Date.now() + (u.retryMs ?? 0) : 0;
    this.drainAt = 0;
  }

  #news(u: Exclude<Update, Connection>): void {
    switch (u.type) {
      case "arrived":
        return this.#arrived(u.epoch, { from: u.event.seq, to: u.event.seq, event: u.event });
      case "withheld":
        return this.#arrived(u.epoch, { from: u.from, to: u.to, why: u.why });
      case "recalled":
        this.pieces = this.pieces.map((p) => (p.event?.seq === u.event.seq ? { ...p, event: u.event } : p));
        return;
      case "dropped":
        this.told.epochs++;
        this.epoch = u.epoch;
        this.pieces = [];
        this.#next = 1;
        if (u.error) this.#notice(`The log is gone: ${u.error.message}`);
        return;
      case "ended":
        return this.#ended(u);
      case "asked":
        this.asked.set(u.entry.cmid, u.error ? u.error.message : "It has waited so long that the server may no longer recognise a repetition.");
        return;
      case "lost":
        this.told.lost++;
        this.notices.push({ key: `n-${++this.#notices}`, text: u.entry.body, lost: u });
        return;
      case "read_moved":
        this.read = { epoch: u.epoch, seq: u.seq };
    }
  }

  #arrived(epoch: number, piece: Piece): void {
    this.epoch = epoch;
    if (piece.from !== this.#next) this.told.wrong++;
    this.#next = piece.to + 1;
    this.pieces = [...this.pieces, piece].slice(-MAX_SHOWN);
  }

  #ended(u: Ended): void {
    this.asked.delete(u.entry.cmid);
    if (u.sent?.dup) {
      this.told.dups++;
      this.recognised.add(u.entry.cmid);
    }
    if (!u.error || u.error.name === "DiscardedError") return;
    const what = u.entry.target ? `#${u.entry.target.seq} is not taken back` : `“${u.entry.body}” is not sent`;
    this.#notice(`${what}: ${codeOf(u.error)}, ${u.error.message}`);
  }

  #notice(text: string): void {
    this.notices.push({ key: `n-${++this.#notices}`, text });
  }
}
