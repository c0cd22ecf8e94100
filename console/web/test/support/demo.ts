// The demo page, as a person uses it.

import type { Locator, Page } from "playwright-core";
import { eventually } from "./wait.js";

/** What a log shows at one seq. */
export interface Shown {
  seq: string;
  text: string;
  own: boolean;
  gone: boolean;
}

/** A device's card on a page. */
export class Card {
  readonly node: Locator;

  constructor(page: Page, device: string) {
    this.node = page.locator(`[data-device="${device}"]`);
  }

  async write(text: string): Promise<void> {
    await this.node.getByRole("textbox").fill(text);
    await this.node.getByRole("button", { name: "Send", exact: true }).click();
    await eventually("the message is in the outbox", async () => (await this.node.getByRole("textbox").inputValue()) === "");
  }

  async log(): Promise<Shown[]> {
    return this.node.locator(".log").evaluate((log) => [...log.children].map((li) => ({
      seq: li.querySelector(".seq")?.textContent ?? "", text: li.querySelector(".text")?.textContent ?? "",
      own: li.classList.contains("own"), gone: li.querySelector(".gone") !== null,
    })));
  }

  /** The texts of the messages in the log that begin with a word, in order. */
  async texts(start: string): Promise<string[]> {
    return (await this.log()).map((l) => l.text).filter((t) => t.startsWith(start));
  }

  /** Waits until exactly these texts that begin with the word are in the log, in this order. */
  async shows(start: string, ...texts: string[]): Promise<void> {
    await eventually(`the log shows ${texts.join(", ")}`, async () => JSON.stringify(await this.texts(start)) === JSON.stringify(texts), () => this.log());
  }

  /** The seq of the message with a text; 0: there is none. */
  async seqOf(text: string): Promise<number> {
    return Number((await this.log()).find((l) => l.text === text)?.seq.slice(1) ?? 0);
  }

  /** Whether the log's numbers follow each other without a hole. */
  async whole(): Promise<boolean> {
    let next = 1;
    for (const { seq } of await this.log()) {
      const [from, to = from] = seq.slice(1).split("–").map(Number);
      if (from !== next || to === undefined) return false;
      next = to + 1;
    }
    return next > 1;
  }

  state(): Promise<string> {
    return this.node.getAttribute("data-state").then((s) => s ?? "");
  }

  is(state: string): Promise<unknown> {
    return eventually(`the device is ${state}`, async () => (await this.state()) === state, () => this.node.locator(".state").textContent());
  }

  async online(on: boolean): Promise<void> {
    await this.node.getByRole("switch", { name: "online" }).setChecked(on);
    await this.is(on ? "online" : "offline");
  }

  /** What the outbox shows, each entry as one text. */
  waiting(): Promise<string[]> {
    return this.node.locator(".waiting li").allTextContents();
  }

  epoch(): Promise<string> {
    return this.node.locator(".meta code").textContent().then((t) => t ?? "");
  }

  async recall(text: string): Promise<number> {
    const seq = await this.seqOf(text);
    await this.node.getByRole("button", { name: `Recall #${seq}`, exact: true }).click();
    return seq;
  }
}

/** A figure of the strip. */
export async function figure(page: Page, id: string): Promise<number> {
  return Number(await page.locator(`[data-figure="${id}"]`).textContent());
}
