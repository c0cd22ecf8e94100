// What was proven so far: sums of what the clients were told and of what their sockets carried.

import type { Device } from "./device.js";
import { byId, el, setText } from "./dom.js";

interface Figure {
  id: string;
  label: string;
  about: string;
  of(d: Device): number;
}

const FIGURES: Figure[] = [
  { id: "resends", label: "sent again", about: "transmissions under the cmid of before, because no answer had come", of: (d) => d.watch.seen.resends },
  { id: "known", label: "recognised", about: "of these the server said: stored already", of: (d) => d.told.dups },
  { id: "repeats", label: "repeats dropped", about: "events that were pushed once more", of: (d) => d.watch.seen.repeats },
  { id: "wrong", label: "shown twice or out of order", about: "of what the clients told; it has to stay 0", of: (d) => d.told.wrong },
  { id: "gaps", label: "gaps closed", about: "an event was missing, and was fetched", of: (d) => d.watch.seen.gaps },
  { id: "epochs", label: "epoch changes", about: "the log got another history, and the copy was dropped", of: (d) => d.told.epochs },
  { id: "lost", label: "handed back", about: "messages that a restore had lost, told to their sender", of: (d) => d.told.lost },
];

/** The strip of figures. */
export class Tally {
  readonly #devices: Device[];
  readonly #values = new Map<string, HTMLElement>();

  constructor(devices: Device[]) {
    this.#devices = devices;
    const strip = byId("tally");
    for (const f of FIGURES) {
      const value = el("dd", { "data-figure": f.id }, "0");
      this.#values.set(f.id, value);
      strip.append(el("div", { class: f.id === "wrong" ? "figure zero" : "figure" }, el("dt", {}, f.label, el("small", {}, f.about)), value));
    }
  }

  paint(): void {
    for (const f of FIGURES) {
      const value = this.#values.get(f.id);
      const sum = this.#devices.reduce((n, d) => n + f.of(d), 0);
      if (!value) continue;
      setText(value, String(sum));
      value.classList.toggle("some", sum > 0);
    }
  }
}
