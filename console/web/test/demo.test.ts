// The demo page in Chromium, against a real `tidings dev`.

import assert from "node:assert/strict";
import { after, afterEach, before, describe, it } from "node:test";
import type { Page } from "playwright-core";
import { accessible, reachable } from "./support/axe.js";
import { Browsing } from "./support/browsing.js";
import { Card, figure } from "./support/demo.js";
import { Dev } from "./support/dev.js";
import { eventually } from "./support/wait.js";

const DEVICES = ["ana-phone", "ana-laptop", "ben-phone", "ben-laptop"] as const;

describe("the demo page", { timeout: 600_000 }, () => {
  let dev: Dev;
  let browsing: Browsing;
  let words = 0;

  before(async () => {
    dev = await Dev.start();
    browsing = await Browsing.start(dev.url);
  });
  afterEach(async () => {
    for (const device of DEVICES) await dev.post(`lines/${device}`, { online: true, shuffle: false, lose_reply: false });
    await browsing.check();
  });
  after(async () => {
    await browsing?.stop();
    await dev?.stop();
  });

  /** A word that no other test writes. */
  const word = (): string => `w${++words}`;

  /** A page for one device, in a browser of its own, once it is online. */
  async function alone(device: string): Promise<{ page: Page; card: Card }> {
    const page = await browsing.open(`/?device=${device}`);
    const card = new Card(page, device);
    await card.is("online");
    return { page, card };
  }

  /** The page with everybody. */
  async function together(): Promise<{ page: Page; cards: Record<(typeof DEVICES)[number], Card>; all: Card[] }> {
    const page = await browsing.open("/");
    const all = DEVICES.map((d) => new Card(page, d));
    for (const c of all) await c.is("online");
    for (const c of all) await eventually("the log is here", async () => (await c.log()).length > 0);
    const [a, b, c, d] = all as [Card, Card, Card, Card];
    return { page, cards: { "ana-phone": a, "ana-laptop": b, "ben-phone": c, "ben-laptop": d }, all };
  }

  it("brings a message from one page to another, and back", async () => {
    const w = word();
    const ana = await alone("ana-phone");
    const ben = await alone("ben-laptop");
    await ana.card.write(`${w} hello`);
    await ben.card.shows(w, `${w} hello`);
    await ben.card.write(`${w} <b>good</b> day`);
    for (const { card } of [ana, ben]) {
      await card.shows(w, `${w} hello`, `${w} <b>good</b> day`);
      assert.equal(await card.seqOf(`${w} hello`), (await card.seqOf(`${w} <b>good</b> day`)) - 1);
      assert.ok(await card.whole());
    }
    assert.equal(await ana.page.locator(".log b").count(), 0, "what people write is text");
    assert.deepEqual((await ana.card.log()).filter((l) => l.text.startsWith(w)).map((l) => l.own), [true, false]);
  });

  it("counts what is unread, on all devices of a person, and shows who has read", async () => {
    const w = word();
    const { cards } = await together();
    await cards["ben-phone"].node.getByRole("button", { name: "Mark as read" }).click({ timeout: 2000 }).catch(() => {}); // of other tests; nothing may be unread
    await cards["ana-phone"].write(`${w} one`);
    await cards["ana-phone"].write(`${w} two`);
    for (const device of ["ben-phone", "ben-laptop"] as const) {
      await eventually("two are unread", async () => (await cards[device].node.locator(".badge").textContent()) === "2 unread", () => cards[device].node.locator(".badge").textContent());
    }
    await cards["ben-laptop"].node.getByRole("button", { name: "Mark as read" }).click();
    for (const device of ["ben-phone", "ben-laptop"] as const) await eventually("nothing is unread", () => cards[device].node.locator(".badge").isHidden());
    const last = cards["ana-laptop"].node.locator(".log li").filter({ hasText: `${w} two` });
    await eventually("Ana sees it", async () => (await last.locator(".mark").allTextContents()).includes("Ben has read up to here"));
  });

  it("keeps what is written offline, and fetches what was missed", async () => {
    const w = word();
    const { page, cards, all } = await together();
    const gaps = await figure(page, "gaps");
    await cards["ana-phone"].online(false);
    await cards["ana-phone"].write(`${w} from the tunnel`);
    assert.match((await cards["ana-phone"].waiting()).join(), /from the tunnel.*waits for the network; nothing of it is stored/);
    await cards["ben-phone"].write(`${w} where are you?`);
    await cards["ben-laptop"].shows(w, `${w} where are you?`);
    await cards["ana-laptop"].shows(w, `${w} where are you?`);
    assert.deepEqual(await cards["ana-phone"].texts(w), []);
    await cards["ana-phone"].online(true);
    for (const c of all) await c.shows(w, `${w} where are you?`, `${w} from the tunnel`);
    for (const c of all) assert.ok(await c.whole());
    assert.deepEqual(await cards["ana-phone"].waiting(), []);
    await eventually("the gap is counted", async () => (await figure(page, "gaps")) > gaps);
    assert.equal(await figure(page, "wrong"), 0);
  });

  it("recalls while offline", async () => {
    const w = word();
    const { cards, all } = await together();
    await cards["ana-phone"].write(`${w} a secret`);
    for (const c of all) await c.shows(w, `${w} a secret`);
    await cards["ana-phone"].online(false);
    await cards["ben-phone"].online(false);
    const seq = await cards["ana-phone"].recall(`${w} a secret`);
    await eventually("it waits", async () => (await cards["ana-phone"].waiting()).some((t) => t.includes(`Take #${seq} back`)), () => cards["ana-phone"].waiting());
    await cards["ben-laptop"].shows(w, `${w} a secret`);
    await cards["ana-phone"].online(true);
    for (const device of ["ana-phone", "ana-laptop", "ben-laptop"] as const) await cards[device].shows(w);
    await cards["ben-phone"].shows(w, `${w} a secret`); // it was there already, and nobody reaches this device
    await cards["ben-phone"].online(true);
    for (const c of all) {
      await c.shows(w);
      const at = (await c.log()).find((l) => l.seq === `#${seq}`);
      assert.deepEqual([at?.text, at?.gone], ["recalled", true]);
      assert.ok((await c.log()).some((l) => l.text === `Ana took #${seq} back`));
    }
  });

  it("keeps unsent messages over a reload, and sends each once", async () => {
    const w = word();
    const ben = await alone("ben-phone");
    const ana = await alone("ana-laptop");
    await ana.card.online(false);
    await ana.card.write(`${w} one`);
    await ana.card.write(`${w} two`);
    await ana.page.reload();
    await eventually("they wait in the new page", async () => (await ana.card.waiting()).length === 2, () => ana.card.waiting());
    assert.deepEqual(await ben.card.texts(w), []);
    await ana.card.online(true);
    for (const { card } of [ana, ben]) await card.shows(w, `${w} one`, `${w} two`);
    assert.deepEqual(await ana.card.waiting(), []);
  });

  it("outlives both gateways", async () => {
    const w = word();
    const { page, cards, all } = await together();
    await cards["ana-phone"].write(`${w} before`);
    for (const c of all) await c.shows(w, `${w} before`);
    const epoch = await cards["ana-phone"].epoch();
    for (const name of ["a", "b"]) await page.getByRole("button", { name: `Kill gateway ${name}` }).click();
    for (const c of all) await c.is("offline");
    await cards["ana-phone"].write(`${w} meanwhile`);
    await cards["ben-laptop"].write(`${w} meanwhile, too`);
    for (const c of all) await c.is("online");
    for (const c of all) await eventually("all have all", async () => (await c.texts(w)).length === 3, () => c.texts(w));
    for (const c of all) {
      assert.deepEqual([...(await c.texts(w))].sort(), [`${w} before`, `${w} meanwhile`, `${w} meanwhile, too`]);
      assert.deepEqual(await c.texts(w), await all[0]?.texts(w));
      assert.ok(await c.whole());
      assert.equal(await c.epoch(), epoch);
    }
    assert.equal(await figure(page, "wrong"), 0);
  });

  it("waits as long as /readyz asks for, once both gateways are drained", async () => {
    const w = word();
    const { page, card } = await alone("ana-phone");
    const refusals: { at: number; seconds: number }[] = [];
    const sockets: number[] = [];
    page.on("response", (r) => {
      if (r.url().endsWith("/dev/line/ana-phone/readyz") && r.status() === 503) refusals.push({ at: Date.now(), seconds: Number(r.headers()["retry-after"]) });
    });
    page.on("websocket", () => sockets.push(Date.now()));
    await Promise.all(["a", "b"].map((name) => dev.post(`gateways/${name}`, { do: "drain" })));
    const first = await eventually("the page asks /readyz", () => refusals[0]);
    assert.ok(first.seconds > 0, `Retry-After is ${first.seconds}`);
    const shown = await eventually("it says when it tries again", async () => /tries again in (\d+) s/.exec((await card.node.locator(".state").textContent()) ?? "")?.[1]);
    assert.ok(Number(shown) >= first.seconds - 1, `it shows ${shown} s, /readyz asked for ${first.seconds} s`);
    await card.write(`${w} patience`);
    await card.is("online");
    await card.shows(w, `${w} patience`);
    const next = sockets.find((at) => at > first.at);
    assert.ok(next && next - first.at >= first.seconds * 1000 - 50, `it came after ${next && next - first.at} ms, /readyz asked for ${first.seconds} s`);
  });

  it("shows a message once whose answer was lost", async () => {
    const w = word();
    const { page, cards, all } = await together();
    const [resends, known] = [await figure(page, "resends"), await figure(page, "known")];
    await cards["ana-phone"].node.getByLabel("lose the next reply").check();
    await eventually("it is armed", async () => (await dev.state()).lines["ana-phone"]?.lose_reply);
    await cards["ana-phone"].write(`${w} once`);
    await eventually("the reply was lost", async () => (await dev.state()).lines["ana-phone"]?.lose_reply === false);
    await eventually("it was sent again", async () => (await figure(page, "resends")) > resends);
    await eventually("and was recognised", async () => (await figure(page, "known")) > known);
    for (const c of all) await c.shows(w, `${w} once`);
    for (const c of all) assert.ok(await c.whole());
    assert.deepEqual(await cards["ana-phone"].waiting(), []);
    await cards["ana-phone"].node.locator(".log li", { hasText: `${w} once` }).getByText("sent again, and stored once").waitFor({ timeout: 5000 });
    await eventually("the switch is off again", async () => !(await cards["ana-phone"].node.getByLabel("lose the next reply").isChecked()));
  });

  it("shows shuffled pushes in order, each once", async () => {
    const { page, cards } = await together();
    const w = word();
    await cards["ben-phone"].node.getByLabel("shuffle pushes").check();
    await eventually("it is on", async () => (await dev.state()).lines["ben-phone"]?.shuffle);
    const texts = [1, 2, 3, 4, 5, 6].map((n) => `${w} ${n}`);
    for (const t of texts) await cards["ana-laptop"].write(t);
    await cards["ben-phone"].shows(w, ...texts);
    await eventually("something was pushed twice", async () => (await figure(page, "repeats")) > 0);
    assert.ok(await cards["ben-phone"].whole());
    assert.deepEqual(await cards["ben-phone"].texts(w), texts);
    assert.equal(await figure(page, "wrong"), 0);
  });

  it("takes a restored backup for another history, and tells what is lost", async () => {
    const w = word();
    const { page, cards, all } = await together();
    await cards["ana-phone"].write(`${w} kept`);
    for (const c of all) await c.shows(w, `${w} kept`);
    await page.getByRole("button", { name: "Back up now" }).click();
    await eventually("there is a backup", async () => (await dev.state()).backup && (await dev.state()).busy === "");
    await cards["ana-phone"].write(`${w} lost`);
    for (const c of all) await c.shows(w, `${w} kept`, `${w} lost`);
    const epoch = await cards["ana-phone"].epoch();
    await page.getByRole("button", { name: "Restore that backup" }).click();
    for (const c of all) await eventually("the epoch is another one", async () => !["–", epoch].includes(await c.epoch()), () => c.node.textContent());
    for (const c of all) await c.shows(w, `${w} kept`);
    const notice = cards["ana-phone"].node.locator(".notices .lost");
    await eventually("the sender is told", async () => (await notice.filter({ hasText: `${w} lost` }).count()) === 1);
    assert.equal(await page.locator(".notices .lost").filter({ hasText: `${w} lost` }).count(), 1, "and nobody else");
    assert.ok((await figure(page, "epochs")) >= 4 && (await figure(page, "lost")) >= 1);
    await accessible(page);
    await notice.filter({ hasText: `${w} lost` }).getByRole("button", { name: "Send it again" }).click();
    for (const c of all) await c.shows(w, `${w} kept`, `${w} lost`);
    for (const c of all) assert.ok(await c.whole());
    assert.equal(await figure(page, "wrong"), 0);
  });

  it("asks the sms provider that went silent, and leaves the plain one to a person", async () => {
    const w = word();
    const page = await browsing.open("/");
    const notify = async (channel: string): Promise<void> => {
      await page.getByLabel("Channel").selectOption(channel);
      await page.getByLabel("Text").fill(`${w} ${channel}`);
      await page.getByLabel("the provider accepts it and goes silent").check();
      await page.getByRole("button", { name: "Notify" }).click();
      await page.locator("#sent > li").filter({ hasText: `${w} ${channel}` }).waitFor();
    };
    const task = (channel: string): ReturnType<Page["locator"]> => page.locator("#sent > li").filter({ hasText: `${w} ${channel}` }).locator(".task");
    await notify("sms");
    const states = new Set<string | null>();
    await eventually("the provider is asked", async () => {
      states.add(await task("sms").getAttribute("data-state"));
      return states.has("SENT");
    }, () => [...states]);
    assert.ok(states.size > 1, "the states are seen live");
    assert.match((await task("sms").locator(".attempts").textContent()) ?? "", /TIMEOUT.*QUERY_FOUND/);
    await notify("plain");
    await eventually("it waits for a person", async () => (await task("plain").getAttribute("data-state")) === "REVIEW");
    assert.match((await task("plain").getByRole("link").getAttribute("href")) ?? "", /^\/console/);
    await accessible(page);
  });

  it("says that another browser has taken the device, and takes it back", async () => {
    const here = await alone("ana-phone");
    const there = await alone("ana-phone");
    await here.card.is("stopped");
    await here.card.node.getByRole("button", { name: "Take the device back" }).click({ timeout: 5000 });
    await there.card.is("stopped");
  });

  it("can be used by everybody, and on a phone", async () => {
    const { page, cards } = await together();
    await cards["ana-phone"].write("a text that is so long that it has to be broken: " + "x".repeat(80));
    await cards["ana-phone"].write("short");
    await eventually("they are shown", async () => (await cards["ana-phone"].texts("short")).length > 0);
    await cards["ana-phone"].online(false);
    await cards["ana-phone"].write("waits");
    await accessible(page);
    await reachable(page);
    await cards["ana-phone"].online(true);
    const one = await browsing.open("/?device=ben-laptop");
    await new Card(one, "ben-laptop").is("online");
    await accessible(one);
    await reachable(one);
  });
});
