// A device on the page: its connection, the log as it has it, its outbox, what can be done with it.

import type { WaitingEntry } from "../../../clients/ts/src/index.js";
import type { DevState, LineChange } from "./dev.js";
import type { Device, Notice, Piece } from "./device.js";
import { el, KeyedList, setText } from "./dom.js";
import { clock, connectionText, entryText, nameOf, pieceText } from "./words.js";

/** What a card needs of the page. */
export interface Around {
  /** How far each user has read, by what this page's clients know. */
  reads(epoch: number): Map<string, number>;
  name(user: string): string;
  change(device: Device, change: LineChange): void;
  /** Does something that can fail, and says so if it does. */
  attempt(what: () => Promise<unknown>): void;
}

export class Card {
  readonly node: HTMLElement;
  readonly #device: Device;
  readonly #around: Around;
  readonly #state = el("p", { class: "state" });
  readonly #epoch = el("code", {}, "–");
  readonly #unread = el("span", { class: "badge" });
  readonly #readUpTo = el("small");
  readonly #markRead: HTMLButtonElement;
  readonly #takeBack: HTMLButtonElement;
  readonly #log: HTMLElement;
  readonly #pieces: KeyedList<Piece>;
  readonly #outbox: KeyedList<WaitingEntry>;
  readonly #notices: KeyedList<Notice>;
  readonly #box: HTMLElement;
  readonly #online = el("input", { type: "checkbox", role: "switch" });
  readonly #lose = el("input", { type: "checkbox" });
  readonly #shuffle = el("input", { type: "checkbox" });
  readonly #gateway = el("span");

  constructor(device: Device, around: Around) {
    this.#device = device;
    this.#around = around;
    const { device: id, kind } = device.info;
    const title = `${device.person.name}’s ${kind}`;
    this.#log = el("ol", { class: "log", tabindex: "0", "aria-label": `Log on ${title}` });
    this.#pieces = new KeyedList(this.#log, (p) => this.#piece(p));
    const waiting = el("ol", { class: "waiting", tabindex: "-1" });
    this.#outbox = new KeyedList(waiting, (e) => this.#entry(e));
    this.#box = el("section", { class: "outbox", "aria-label": `Outbox of ${title}`, hidden: true }, el("h4", {}, "Outbox"), waiting);
    const notices = el("ul", { class: "notices", tabindex: "-1", "aria-label": `Notices of ${title}` });
    this.#notices = new KeyedList(notices, (n) => this.#notice(n));
    this.#markRead = el("button", { type: "button", onclick: () => device.markRead() }, "Mark as read");
    this.#takeBack = el("button", { type: "button", hidden: true, onclick: () => device.reconnect() }, "Take the device back");
    this.node = el("article", { class: `card ${kind}`, "data-device": id, "aria-label": title },
      el("header", {}, el("h3", {}, title), this.#unread),
      this.#switches(title),
      this.#state, this.#takeBack,
      el("p", { class: "meta" }, "epoch ", this.#epoch),
      this.#log, notices, this.#box, this.#composer(title), el("p", { class: "tools" }, this.#markRead, this.#readUpTo));
    const ask = (input: HTMLInputElement, change: (on: boolean) => LineChange): void =>
      input.addEventListener("change", () => around.change(device, change(input.checked)));
    ask(this.#online, (online) => ({ online }));
    ask(this.#lose, (lose) => ({ lose_reply: lose }));
    ask(this.#shuffle, (shuffle) => ({ shuffle }));
  }

  #switches(title: string): HTMLElement {
    const cut = el("button", { type: "button", onclick: () => this.#around.change(this.#device, { cut: true }) }, "Cut");
    return el("fieldset", { class: "line" }, el("legend", {}, el("span", { class: "hidden" }, `Network of ${title}: `), "via ", this.#gateway),
      el("label", { class: "switch" }, this.#online, " online"), cut,
      el("label", {}, this.#lose, " lose the next reply"),
      el("label", {}, this.#shuffle, " shuffle pushes"));
  }

  #composer(title: string): HTMLElement {
    const input = el("input", { type: "text", autocomplete: "off", maxlength: "2000", placeholder: "Write something", "aria-label": `Message from ${title}` });
    const form = el("form", { class: "composer" }, input, el("button", { type: "submit", class: "main" }, "Send"));
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      const text = input.value;
      if (text.trim() === "") return;
      this.#around.attempt(async () => {
        await this.#device.send(text);
        if (input.value === text) input.value = "";
      });
    });
    return form;
  }

  /** Shows what the line is, as the server says. */
  line(state: DevState): void {
    const line = state.lines[this.#device.info.device];
    if (!line) return;
    this.#online.checked = line.online;
    this.#lose.checked = line.lose_reply;
    this.#shuffle.checked = line.shuffle;
    setText(this.#gateway, line.online && line.gateway ? `gateway ${line.gateway}` : "no gateway");
  }

  paint(): void {
    const d = this.#device;
    const { state } = d.connection;
    const atEnd = this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < 40;
    this.node.dataset["state"] = state;
    setText(this.#state, connectionText(d, Date.now()));
    this.#takeBack.hidden = state !== "stopped";
    setText(this.#epoch, d.epoch ? String(d.epoch) : "–");
    const { unread } = d;
    setText(this.#unread, unread > 0 ? `${unread} unread` : "");
    this.#unread.hidden = unread === 0;
    setText(this.#readUpTo, d.read.seq > 0 && d.read.epoch === d.epoch ? `read up to #${d.read.seq}` : "nothing read");
    this.#markRead.disabled = d.head === 0 || (d.read.epoch === d.epoch && d.read.seq >= d.head);
    this.#box.hidden = d.waiting.length === 0;
    const online = state === "online";
    this.#outbox.show(d.waiting.map((e) => ({ key: e.cmid, signature: `${entryText(d, e)} ${online}`, item: e })));
    this.#notices.show(d.notices.map((n) => ({ key: n.key, signature: "", item: n })));
    this.#paintLog();
    if (atEnd) this.#log.scrollTop = this.#log.scrollHeight; // also when an outbox has taken some of its height
  }

  #paintLog(): void {
    const d = this.#device;
    const recalling = new Set(d.waiting.flatMap((e) => (e.target ? [e.target.seq] : [])));
    const marks = [...this.#around.reads(d.epoch)];
    this.#pieces.show(d.pieces.map((p) => {
      const readers = marks.filter(([, seq]) => seq >= p.from && seq <= p.to).map(([user]) => user).join();
      const recall = p.event && recalling.has(p.event.seq) ? "recalling" : "";
      const again = d.recognised.has(p.event?.cmid ?? "") ? "again" : "";
      return { key: `${d.epoch}:${p.from}`, signature: `${p.event?.recalled ?? ""} ${readers} ${recall} ${again}`, item: p };
    }));
  }

  #piece(p: Piece): HTMLElement {
    const d = this.#device;
    const e = p.event;
    const own = e?.sender === d.person.user;
    const kind = e?.kind === "msg" ? (own ? "own" : "other") : "note";
    const recalling = d.waiting.some((w) => w.target?.seq === e?.seq);
    const readers = [...this.#around.reads(d.epoch)].filter(([, seq]) => seq >= p.from && seq <= p.to).map(([user]) => this.#around.name(user));
    const item = el("li", { class: kind, "data-seq": String(p.from), "data-sender": e?.sender }, el("span", { class: "seq" }, p.from === p.to ? `#${p.from}` : `#${p.from}–${p.to}`),
      el("span", { class: e?.kind === "msg" && e.recalled ? "text gone" : "text" }, pieceText(p, (user) => this.#around.name(user))));
    if (e?.kind === "msg") {
      const by = el("div", { class: "by" }, el("small", {}, `${own ? "you" : this.#around.name(e.sender)}, ${e.sdev ? nameOf(e.sdev) : "by HTTP"}, ${clock(e.at)}`));
      if (own && !e.recalled) {
        by.append(recalling ? el("small", {}, "being taken back")
          : el("button", { type: "button", class: "quiet", "aria-label": `Recall #${e.seq}`, onclick: () => this.#around.attempt(() => d.recall(e.seq)) }, "Recall"));
      }
      item.append(by);
      if (d.recognised.has(e.cmid ?? "")) item.append(el("span", { class: "again" }, "sent again, and stored once"));
    }
    for (const name of readers) item.append(el("span", { class: "mark" }, `${name} has read up to here`));
    return item;
  }

  #entry(e: WaitingEntry): HTMLElement {
    const d = this.#device;
    const item = el("li", { "data-cmid": e.cmid }, el("span", { class: "text" }, e.target ? `Take #${e.target.seq} back` : e.body), el("small", {}, entryText(d, e)));
    if (d.asked.has(e.cmid)) item.append(el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.resend(e.cmid)) }, "Send"));
    item.append(el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.discard(e.cmid)) }, "Discard"));
    return item;
  }

  #notice(n: Notice): HTMLElement {
    const d = this.#device;
    const dismiss = el("button", { type: "button", class: "quiet", onclick: () => d.dismiss(n) }, "Dismiss");
    if (!n.lost) return el("li", {}, n.text, " ", dismiss);
    return el("li", { class: "lost" }, el("strong", {}, "Lost in the restore: "), `“${n.text}” was #${n.lost.sent.seq} of the former history. It is not sent again by itself. `,
      el("button", { type: "button", class: "quiet", onclick: () => this.#around.attempt(() => d.sendLost(n)) }, "Send it again"), " ", dismiss);
  }
}
