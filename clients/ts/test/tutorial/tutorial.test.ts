// Follows docs/tutorial.md from a clean clone, by its own text: its files, its commands, and its page in Chromium.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, lstatSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, describe, it } from "node:test";
import { chromium, type Browser, type Page } from "playwright-core";
import { REPOSITORY, temporary } from "../support/paths.js";
import { eventually } from "../support/wait.js";
import { Terminal } from "./terminal.js";
import { read, shows, type Commands } from "./text.js";

const BROWSER = [process.env["CHROMIUM"] ?? "", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));

/** What tidings dev prints in place of an address on the page when a port is taken; the page says to use that one. */
const ADDRESSES = { API: "http://127.0.0.1:8080", mails: "http://127.0.0.1:8025/mails", providers: "http://127.0.0.1:8026" };

/** What only asks may be asked again until it shows what the page shows. */
const ONLY_ASKS = /^(go run \.\/cmd\/tidings review (list|show)|curl -sS http\S+$)/;

describe("the tutorial", { timeout: 1_200_000 }, () => {
  const cleanups: (() => unknown)[] = [];
  after(async () => {
    for (const clean of cleanups.reverse()) await clean();
  });

  it("can be followed by its text", async (t) => {
    const reader = new Reader(temporary({ after: (f) => void cleanups.push(f) }));
    cleanups.push(() => reader.leave());
    const steps = read(readFileSync(join(REPOSITORY, "docs/tutorial.md"), "utf8"));
    const left = new Set(Object.keys(reader.checks));
    for (const step of steps) {
      switch (step.kind) {
        case "file":
          t.diagnostic(`write ${step.path}`);
          reader.write(step.path, step.text);
          break;
        case "commands":
          t.diagnostic(`terminal ${step.terminal}: ${step.text}`);
          await reader.type(step);
          break;
        case "check": {
          t.diagnostic(`look: ${step.name}`);
          const check = reader.checks[step.name];
          assert.ok(check, `the page has the check "${step.name}", which is not known here`);
          await check();
          left.delete(step.name);
        }
      }
    }
    assert.deepEqual([...left], [], "the page has lost checks");
  });
});

/** Somebody who has this page, a terminal or three, and a browser. */
class Reader {
  readonly #dir: string;
  readonly #tree: string;
  readonly #terminals = new Map<string, Terminal>();
  readonly #moved = new Map<string, string>(); // addresses of the page that are others here
  #database = "";
  #task = "";
  #browser: Browser | undefined;
  #windows: [Page, Page] | undefined;
  readonly #troubles: string[] = []; // in the windows

  constructor(dir: string) {
    this.#dir = dir;
    this.#tree = join(dir, "tidings");
    for (const file of execFileSync("git", ["ls-files", "-co", "--exclude-standard", "-z"], { cwd: REPOSITORY }).toString().split("\0")) {
      if (file && existsSync(join(REPOSITORY, file))) cpSync(join(REPOSITORY, file), join(this.#tree, file));
    }
  }

  async leave(): Promise<void> {
    await this.#browser?.close();
    for (const terminal of [...this.#terminals.values()].reverse()) if (terminal.running) await terminal.interrupt();
    const data = join(this.#tree, ".tidings/pg"); // for root it lies elsewhere, behind a link
    if (lstatSync(data, { throwIfNoEntry: false })?.isSymbolicLink()) rmSync(realpathSync(data), { recursive: true, force: true });
  }

  #terminal(name: string): Terminal {
    let t = this.#terminals.get(name);
    if (!t) this.#terminals.set(name, (t = new Terminal(this.#tree, join(this.#dir, `terminal-${name}`))));
    return t;
  }

  write(path: string, text: string): void {
    const file = join(this.#tree, path);
    assert.ok(!existsSync(file), `${path} is there already`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, this.#here(text));
  }

  async type(step: Commands): Promise<void> {
    const terminal = this.#terminal(step.terminal);
    if (step.text === "^C") return terminal.interrupt();
    const commands = this.#fill(step.text);
    const printed = (): boolean => {
      if (/tidings dev$/.test(commands)) this.#listen(terminal.output);
      return !step.prints || shows(terminal.output, this.#here(step.prints));
    };
    const trouble = (): string => `it prints:\n${terminal.output}\nand not:\n${this.#here(step.prints)}`;
    if (step.hint === "leave it running") {
      assert.ok(step.prints, "the page does not say how one sees that it runs");
      terminal.start(commands);
      await eventually("the program is there", () => printed() || !terminal.running, trouble, 300_000);
      assert.ok(terminal.running, `it has ended: ${terminal.output}`);
      return;
    }
    assert.ok(["", "it fails, as it should", "look again until it is there"].includes(step.hint), `the hint "${step.hint}" is not known here`);
    const asks = commands.split("\n").every((line) => ONLY_ASKS.test(line));
    await eventually("it prints what the page shows", async () => {
      const succeeded = await terminal.run(commands);
      assert.equal(succeeded, step.hint !== "it fails, as it should", `${commands}\n${terminal.output}`);
      assert.ok(asks || printed(), trouble());
      return printed();
    }, trouble, 60_000);
    this.#task = /^([0-9a-f-]{32,36}) /m.exec(terminal.output)?.[1] ?? this.#task;
  }

  /** What tidings dev says of itself: where things are. */
  #listen(said: string): void {
    const word = (name: string): string => new RegExp(`^${name} +(\\S+) `, "m").exec(said)?.[1] ?? "";
    this.#database = word("database");
    for (const [name, address] of Object.entries(ADDRESSES)) this.#moved.set(address, word(name) || address);
  }

  /** A text of the page with the addresses that are other ones here. */
  #here(text: string): string {
    for (const [there, here] of this.#moved) text = text.replaceAll(there, here);
    return text;
  }

  /** Puts in what the page leaves to its reader. */
  #fill(commands: string): string {
    commands = this.#here(commands).replace(/'postgres:\/\/…'(?= +# what tidings dev has printed behind: database$)/m, () => `'${this.#database}'`);
    if (/\bTASK\b/.test(commands)) {
      assert.ok(this.#task, "nothing has shown the id of a task");
      commands = commands.replaceAll(/\bTASK\b/g, this.#task);
    }
    assert.ok(!commands.includes("…"), `the reader does not know what to put in here: ${commands}`);
    return commands;
  }

  /** The addresses that the reader's own server prints, each in a window. */
  async #open(): Promise<[Page, Page]> {
    assert.ok(BROWSER, "there is no Chromium: install it (apt-get install chromium), or let CHROMIUM name one");
    const addresses = this.#terminal("2").output.match(/http:\/\/\S+/g) ?? [];
    assert.equal(addresses.length, 2);
    this.#browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
    const profile = await this.#browser.newContext();
    profile.on("request", (r) => new URL(r.url()).hostname === "127.0.0.1" || this.#troubles.push(`it asks for ${r.url()}`));
    const windows = await Promise.all(addresses.map(async (address) => {
      const page = await profile.newPage();
      page.on("pageerror", (err) => this.#troubles.push(String(err)));
      await page.goto(address);
      return page;
    }));
    return (this.#windows = windows as [Page, Page]);
  }

  async #talkers(): Promise<[Page, Page]> {
    assert.deepEqual(this.#troubles, []);
    return this.#windows ?? this.#open();
  }

  /** What the page asks its reader to do and to see, where it stands in the page. */
  readonly checks: Record<string, () => Promise<void>> = {
    "two windows talk": async () => {
      const [ana, ben] = await this.#talkers();
      for (const window of [ana, ben]) await state(window, "online");
      await say(ana, "Hello Ben");
      await log(ben, ["u-ana: Hello Ben"]);
      await say(ben, "Hello Ana");
      await say(ben, "not this");
      await log(ana, ["u-ana: Hello Ben", "u-ben: Hello Ana", "u-ben: not this"]);
      await ben.locator("#log li", { hasText: "not this" }).getByRole("button", { name: "Recall" }).click();
      for (const window of [ana, ben]) await log(window, ["u-ana: Hello Ben", "u-ben: Hello Ana", "u-ben: (recalled)"]);
      for (const window of [ana, ben]) assert.equal(await window.locator("#unsent li").count(), 0);
    },

    "a message waits": async () => {
      const [ana, ben] = await this.#talkers();
      for (const window of [ana, ben]) await state(window, "offline");
      await say(ana, "Are you there?");
      await unsent(ana, ["Are you there?"]);
      await ana.reload();
      await unsent(ana, ["Are you there?"]);
      assert.equal(await ben.locator("#log li").count(), 3);
    },

    "it is there once": async () => {
      const [ana, ben] = await this.#talkers();
      for (const window of [ana, ben]) await state(window, "online");
      const all = ["u-ana: Hello Ben", "u-ben: Hello Ana", "u-ben: (recalled)", "u-ana: Are you there?"];
      for (const window of [ana, ben]) await log(window, all);
      await unsent(ana, []);
      await say(ben, "Yes.");
      for (const window of [ana, ben]) {
        await window.reload();
        await log(window, [...all, "u-ben: Yes."]);
      }
    },

    "mails about 1001 and 1003": async () => {
      const subjects = await eventually("two mails are there", async () => {
        const answer = await fetch(this.#here(ADDRESSES.mails));
        const list = ((await answer.json()) as { subject: string }[]).map((m) => m.subject);
        return list.length >= 2 && list;
      });
      assert.deepEqual(subjects, ["Your order 1001", "Your order 1003"]);
    },

    "nothing waits for a person": async () => {
      const said = this.#terminal("3").output;
      assert.ok(!shows(said, "… plain …"), said);
      assert.ok(shows(said, "TASK …"), said);
      assert.deepEqual(this.#troubles, []);
    },
  };
}

async function say(window: Page, text: string): Promise<void> {
  await window.getByRole("textbox", { name: "Say" }).fill(text);
  await window.getByRole("button", { name: "Send" }).click();
}

function state(window: Page, want: string): Promise<unknown> {
  return eventually(`the page says ${want}`, async () => (await window.getByRole("status").textContent()) === want, () => window.url(), 60_000);
}

/** The messages that a window shows, without its buttons. */
function log(window: Page, want: string[]): Promise<unknown> {
  return lines(window, "#log li", want);
}

function unsent(window: Page, want: string[]): Promise<unknown> {
  return lines(window, "#unsent li", want);
}

async function lines(window: Page, selector: string, want: string[]): Promise<unknown> {
  let seen: string[] = [];
  return eventually(`${selector} are ${want.join(", ")}`, async () => {
    seen = (await window.locator(selector).allTextContents()).map((text) => text.replace(/Recall$/, "").trim());
    return JSON.stringify(seen) === JSON.stringify(want);
  }, () => seen, 60_000);
}
