// Trouble that concerns everybody: gateways, the backup, and what happened.

import * as dev from "./dev.js";
import { byId, el, KeyedList, setText } from "./dom.js";
import { clock } from "./words.js";

const MAX_LINES = 20;

export class Trouble {
  readonly #act: (what: () => Promise<unknown>) => void;
  readonly #gateways: KeyedList<dev.GatewayState>;
  readonly #log: KeyedList<{ at: string; text: string }>;
  readonly #backup = el("button", { type: "button" }, "Back up now");
  readonly #restore = el("button", { type: "button", class: "danger" }, "Restore that backup");
  readonly #taken = el("span", { id: "backup-state" });

  /** act does what is asked for, says when it fails, and looks at the state anew. */
  constructor(act: (what: () => Promise<unknown>) => void) {
    this.#act = act;
    this.#gateways = new KeyedList(byId("gateways"), (g) => this.#gateway(g));
    this.#log = new KeyedList(byId("happened"), ({ at, text }) => el("li", {}, el("time", { datetime: at }, clock(Date.parse(at))), ` ${text}`));
    this.#backup.addEventListener("click", () => act(dev.backup));
    this.#restore.addEventListener("click", () => act(dev.restore));
    byId("backup").append(this.#backup, " ", this.#restore, " ", this.#taken);
  }

  paint(state: dev.DevState): void {
    this.#gateways.show(state.gateways.map((g) => ({ key: g.name, signature: g.state, item: g })));
    const { backup, busy } = state;
    this.#backup.disabled = busy !== "";
    this.#restore.disabled = busy !== "" || !backup;
    const taken = backup ? `last backup: ${clock(Date.parse(backup.at))}` : "no backup yet";
    setText(this.#taken, busy === "backup" ? "backing up …" : busy === "restore" ? "restoring …" : taken);
    const newest = state.log.slice(-MAX_LINES).reverse();
    this.#log.show(newest.map((l) => ({ key: `${l.at} ${l.text}`, signature: "", item: l })));
  }

  #gateway(g: dev.GatewayState): HTMLElement {
    const button = (what: "kill" | "drain" | "start", label: string): HTMLElement =>
      el("button", { type: "button", "aria-label": `${label} gateway ${g.name}`, onclick: () => this.#act(() => dev.gateway(g.name, what)) }, label);
    const item = el("li", { "data-gateway": g.name, "data-state": g.state }, el("span", { class: "name" }, `gateway ${g.name}`), el("span", { class: `pill ${g.state}` }, g.state));
    if (g.state === "up") item.append(button("kill", "Kill"), button("drain", "Drain"));
    else if (g.state === "draining") item.append(button("kill", "Kill"));
    else item.append(button("start", "Start"));
    return item;
  }
}
