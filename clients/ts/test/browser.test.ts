// The client in Chromium: the outbox in IndexedDB, and several tabs that are one device.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import type { Client, Config, Pending, Update } from "../src/index.js";
import { freePort, House, type Gateway } from "./support/house.js";
import { PACKAGE } from "./support/paths.js";
import { Proxy } from "./support/proxy.js";
import { eventually } from "./support/wait.js";

/** What the tests keep in a page. */
declare global {
  interface Window {
    client: Client;
    updates: Update[];
    pending: Pending[];
  }
}

const BROWSER = [process.env["CHROMIUM"] ?? "", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));

/** A page that opens clients of one device. */
class Tab {
  readonly page: Page;

  private constructor(page: Page) {
    this.page = page;
  }

  static async open(context: BrowserContext, site: string, config: Partial<Config> & { token?: never; text: string }): Promise<Tab> {
    const tab = new Tab(await context.newPage());
    await tab.page.goto(site);
    await tab.start(config);
    return tab;
  }

  start({ text, ...config }: Partial<Config> & { token?: never; text: string }): Promise<void> {
    return this.page.evaluate(async ({ text, config }) => {
      const { Client } = (await import("/index.js" as string)) as typeof import("../src/index.js");
      const updates: Update[] = [];
      window.updates = updates;
      window.pending = [];
      const all = { device: "d-tab", ackEveryMs: 10, backoffMinMs: 10, backoffMaxMs: 100, token: () => ({ text }), handle: (u: Update) => void updates.push(u) };
      window.client = await Client.open({ ...all, ...config } as Config);
    }, { text, config });
  }

  /** What the page was told of a type, without errors' classes. */
  told<T extends Update["type"]>(type: T): Promise<Extract<Update, { type: T }>[]> {
    return this.page.evaluate((type) => window.updates.filter((u) => u.type === type), type) as Promise<Extract<Update, { type: T }>[]>;
  }

  async bodies(conv: string): Promise<(string | undefined)[]> {
    return (await this.told("arrived")).filter((a) => a.conv === conv && a.event.kind === "msg").map((a) => a.event.body);
  }

  send(conv: string, cmid: string, body: string): Promise<void> {
    return this.page.evaluate(async (m) => void window.pending.push(await window.client.send(m)), { conv, cmid, body });
  }

  /** The answer to the message that was sent last. */
  answer(): Promise<{ seq: number; dup: boolean }> {
    return this.page.evaluate(() => (window.pending.at(-1) as Pending).wait());
  }

  state(): Promise<string> {
    return this.page.evaluate(() => window.client.state.state);
  }

  waiting(): Promise<string[]> {
    return this.page.evaluate(async () => (await window.client.waiting()).map((e) => e.cmid));
  }
}

describe("in a browser", { timeout: 180_000 }, () => {
  let house: House;
  let gateway: Gateway;
  let browser: Browser;
  let server: Server;
  let site: string;
  let text: string;
  let conversations = 0;

  before(async () => {
    assert.ok(BROWSER, "there is no Chromium: install it (apt-get install chromium), or let CHROMIUM name one");
    browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
    server = createServer((req, res) => {
      const script = req.url?.endsWith(".js");
      res.writeHead(200, { "Content-Type": script ? "text/javascript" : "text/html" });
      res.end(script ? readFileSync(join(PACKAGE, "dist", req.url ?? "")) : "<!doctype html><title>Tidings</title>");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    site = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    house = await House.start();
    gateway = await house.serve(await freePort(), `--origins=${site}`);
    text = await house.token("u-ana");
  });
  after(async () => {
    await browser?.close();
    server?.closeAllConnections();
    server?.close();
    await house?.stop();
  });

  /** A conversation, a network to the server, and a browser profile. */
  async function scene(t: { after(f: () => Promise<void>): void }): Promise<{ conv: string; network: Proxy; context: BrowserContext }> {
    const conv = `c-${++conversations}`;
    await house.create(conv, "u-ana");
    const network = await Proxy.to(gateway.url);
    const context = await browser.newContext();
    t.after(async () => {
      await context.close();
      await network.close();
    });
    return { conv, network, context };
  }

  it("keeps the outbox over a reload, and sends it once", async (t) => {
    const { conv, network, context } = await scene(t);
    network.down = true;
    const tab = await Tab.open(context, site, { url: network.url, text });
    await tab.send(conv, "m-1", "one");
    await tab.send(conv, "m-2", "two");
    assert.deepEqual(await tab.waiting(), ["m-1", "m-2"]);
    await tab.page.reload();
    await tab.start({ url: network.url, text });
    assert.deepEqual(await tab.waiting(), ["m-1", "m-2"]);
    network.down = false;
    await eventually("both are sent", async () => (await tab.told("ended")).length === 2, () => network.upgrades);
    assert.deepEqual((await tab.told("ended")).map((e) => [e.entry.cmid, e.sent?.seq, e.sent?.dup]), [["m-1", 2, false], ["m-2", 3, false]]);
    assert.deepEqual(await tab.waiting(), []);
    await tab.page.reload();
    await tab.start({ url: network.url, text });
    await eventually("everything arrives in the new page", async () => (await tab.bodies(conv)).length === 2);
    assert.deepEqual(await tab.bodies(conv), ["one", "two"]);
    assert.deepEqual(await tab.told("ended"), []);
  });

  it("is one device in two tabs, and in the one that is left", async (t) => {
    const { conv, network, context } = await scene(t);
    const first = await Tab.open(context, site, { url: network.url, text });
    const second = await Tab.open(context, site, { url: network.url, text });
    const both = [first, second];
    for (const tab of both) await eventually("it is online", async () => (await tab.state()) === "online");
    for (const [i, tab] of both.entries()) {
      await tab.send(conv, `m-${i}`, `of ${i}`);
      assert.equal((await tab.answer()).seq, 2 + i);
    }
    for (const tab of both) {
      await eventually("each has everything", async () => (await tab.bodies(conv)).length === 2);
      assert.deepEqual(await tab.bodies(conv), ["of 0", "of 1"]);
      await eventually("and hears what became of it", async () => (await tab.told("ended")).length === 2);
    }
    await second.page.evaluate((conv) => window.client.markRead(conv, 3), conv);
    for (const tab of both) await eventually("it hears what was read", async () => (await tab.told("read_moved")).some((m) => m.conv === conv && m.seq === 3));
    assert.equal(network.upgrades, 1, "there is one connection");

    network.down = true;
    network.cut();
    for (const tab of both) await eventually("it is offline", async () => (await tab.state()) === "offline");
    await second.send(conv, "m-2", "left behind");
    assert.deepEqual(await first.waiting(), ["m-2"]);
    await first.page.close();
    network.down = false;
    assert.deepEqual([(await second.answer()).seq, (await second.answer()).dup], [4, false]);
    await eventually("the copy goes on", async () => (await second.bodies(conv)).length === 3);
    assert.deepEqual(await second.bodies(conv), ["of 0", "of 1", "left behind"]);
    assert.deepEqual(await second.waiting(), []);
    assert.equal(network.upgrades, 2, "the other tab has made the second connection");
    const third = await Tab.open(context, site, { url: network.url, text });
    await eventually("another tab has it all", async () => (await third.bodies(conv)).length === 3);
    assert.equal(network.upgrades, 2);
    await second.page.evaluate(() => window.client.close());
    await third.send(conv, "m-3", "alone");
    assert.deepEqual(await third.answer().then((sent) => [sent.seq, sent.dup]), [5, false]);
    assert.equal(network.upgrades, 3);
    assert.ok(!(await third.told("connection")).some((c) => c.state === "stopped"));
  });

  it("stops in all tabs when another browser takes the device, until somebody wants otherwise", async (t) => {
    const { conv, network, context } = await scene(t);
    const config = { url: network.url, text, install: "i-1" };
    const tabs = [await Tab.open(context, site, config), await Tab.open(context, site, config)];
    for (const tab of tabs) await eventually("it is online", async () => (await tab.state()) === "online");
    const other = await browser.newContext();
    t.after(() => other.close());
    const elsewhere = await Tab.open(other, site, config);
    for (const tab of tabs) {
      const told = await eventually("it is told", async () => (await tab.told("connection")).find((c) => c.state === "stopped"));
      assert.equal(told.code, 4404);
    }
    await tabs[0]?.page.close();
    const left = tabs[1] as Tab;
    await left.send(conv, "m-1", "waits");
    assert.deepEqual(await left.waiting(), ["m-1"]);
    assert.deepEqual([network.upgrades, await left.state(), await elsewhere.state()], [2, "stopped", "online"]);
    await left.page.evaluate(() => window.client.reconnect());
    assert.equal((await left.answer()).seq, 2);
    await eventually("the other one has to give way", async () => (await elsewhere.state()) === "stopped");
  });

  it("recalls and refuses through another tab", async (t) => {
    const { conv, network, context } = await scene(t);
    const first = await Tab.open(context, site, { url: network.url, text });
    const second = await Tab.open(context, site, { url: network.url, text });
    await second.send(conv, "m-1", "secret");
    const { seq } = await second.answer();
    for (const tab of [first, second]) await eventually("it has arrived", async () => (await tab.bodies(conv)).length === 1);
    const code = (cmid: string): Promise<string> => second.page.evaluate(async ({ conv, seq, cmid }) => {
      const { codeOf } = (await import("/index.js" as string)) as typeof import("../src/index.js");
      return window.client.recall({ conv, target: { seq }, cmid }).then((p) => p.wait()).then(() => "", codeOf);
    }, { conv, seq, cmid });
    assert.equal(await code("r-1"), "");
    for (const tab of [first, second]) await eventually("it is gone", async () => (await tab.told("recalled"))[0]?.event.recalled === true);
    assert.equal(await code("r-2"), "ALREADY_RECALLED");
    const kept = await first.page.evaluate(async () => {
      const db = await new Promise<IDBDatabase>((resolve) => {
        const r = indexedDB.open("tidings-d-tab");
        r.onsuccess = () => resolve(r.result);
      });
      const all = await new Promise<unknown[]>((resolve) => {
        const r = db.transaction("entries").objectStore("entries").getAll();
        r.onsuccess = () => resolve(r.result as unknown[]);
      });
      db.close();
      return JSON.stringify(all);
    });
    assert.ok(!kept.includes("secret"), kept);
  });

  it("asks /readyz when to come back", async (t) => {
    const refusing = createServer((req, res) => {
      assert.equal(req.url, "/readyz");
      res.writeHead(503, { "Access-Control-Allow-Origin": site, "Access-Control-Expose-Headers": "Retry-After", "Retry-After": "7" });
      res.end();
    });
    refusing.on("upgrade", (_req, socket) => socket.end("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
    await new Promise<void>((resolve) => refusing.listen(0, "127.0.0.1", resolve));
    const context = await browser.newContext();
    t.after(async () => {
      await context.close();
      refusing.closeAllConnections();
      refusing.close();
    });
    const tab = await Tab.open(context, site, { url: `http://127.0.0.1:${(refusing.address() as AddressInfo).port}`, text });
    const told = await eventually("it says how long it waits", async () => (await tab.told("connection"))[0]);
    assert.equal(told.state, "offline");
    assert.ok((told.retryMs ?? 0) >= 7000, `it waits ${told.retryMs} ms`);
  });
});
