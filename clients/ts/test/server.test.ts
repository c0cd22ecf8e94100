// The client and a real server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { codeOf, type Recall } from "../src/index.js";
import { FileStorage } from "../src/node.js";
import { freePort, House, Peer, type Gateway } from "./support/house.js";
import { temporary } from "./support/paths.js";
import { Proxy } from "./support/proxy.js";
import { eventually } from "./support/wait.js";

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

describe("with a real server", { timeout: 300_000 }, () => {
  let house: House;
  let gateway: Gateway;
  let port: number;
  let conversations = 0;

  before(async () => {
    house = await House.start();
    port = await freePort();
    gateway = await house.serve(port);
  });
  after(() => house?.stop());

  /** A new conversation of these users, whose joins are its first events. */
  async function conversation(...users: string[]): Promise<string> {
    const conv = `c-${++conversations}`;
    await house.create(conv, ...users);
    return conv;
  }

  /** A client that follows one conversation. */
  async function peer(t: { after(f: () => Promise<void>): void }, conv: string, user: string, device: string, more = {}): Promise<Peer> {
    const p = await Peer.open(house, gateway.url, user, device, { start: (c) => (c === conv ? { epoch: 0, seq: 0 } : undefined), ...more });
    t.after(() => p.client.close());
    return p;
  }

  it("gives two users and two devices the same log", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const ana = await peer(t, conv, "u-ana", "d-a", { outbox: new FileStorage(join(temporary(t), "outbox")) });
    const other = await peer(t, conv, "u-ana", "d-a2");
    const ben = await peer(t, conv, "u-ben", "d-b");
    for (let i = 0; i < 20; i++) await ana.client.send({ conv, cmid: `m-${i}`, body: `text ${i}`, data: { n: i } });
    const { seq, dup } = await (await ana.client.send({ conv, body: "the last one" })).wait();
    assert.deepEqual([seq, dup], [23, false]);
    for (const [p, joined] of [[ana, 1], [other, 1], [ben, 2]] as const) {
      await eventually("everybody has everything", () => p.seqs(conv).length === 24 - joined, () => p.updates);
      assert.deepEqual(p.seqs(conv), range(joined, 23));
      const fifth = p.events(conv).find((e) => e.cmid === "m-4");
      assert.deepEqual([fifth?.body, fifth?.data, fifth?.sdev], ["text 4", { n: 4 }, "d-a"]);
    }
    await eventually("the cursor is stored", async () => (await ana.client.conversations()).find((c) => c.conv === conv)?.delivered === 23);
    other.client.markRead(conv, 5);
    for (const p of [ana, other]) await eventually("both devices hear how far was read", () => p.of("read_moved").some((m) => m.conv === conv && m.seq === 5));
    const { stored, seq: place } = await ana.client.outcome(conv, "m-0");
    assert.deepEqual([stored, place], ["yes", 3]);
    assert.equal((await ben.client.fetch(conv, { epoch: 0, seq: 3 })).body, "text 0");
    await assert.rejects(ana.client.sync("c-absent"), { code: "NOT_MEMBER" });
    await assert.rejects(ana.client.fetch(conv, { epoch: 0, seq: 99 }), { code: "NOT_FOUND" });
    assert.deepEqual(await ana.client.waiting(), []);
  });

  it("recalls, and refuses to", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const path = join(temporary(t), "outbox");
    const ana = await peer(t, conv, "u-ana", "d-r", { outbox: new FileStorage(path) });
    const other = await peer(t, conv, "u-ana", "d-r2");
    const ben = await peer(t, conv, "u-ben", "d-rb");
    const send = async (body: string): Promise<{ seq: number; epoch: number }> => (await ana.client.send({ conv, body, data: { also: body } })).wait();
    const recall = async (p: Peer, r: Omit<Recall, "conv">): Promise<number> => (await (await p.client.recall({ conv, ...r })).wait()).seq;
    const refused = (p: Peer, r: Omit<Recall, "conv">, code: string): Promise<void> => assert.rejects(recall(p, r), { code });
    const one = await send("a secret");
    const kept = await send("stays");
    for (const p of [ana, other, ben]) await eventually("it has arrived", () => p.seqs(conv).includes(4));
    assert.equal(await recall(ana, { target: { seq: one.seq }, cmid: "r-1" }), 5);
    assert.equal(await recall(other, { target: one, cmid: "r-1" }), 5, "the same recall of another device");
    for (const p of [ana, other, ben]) {
      const told = await eventually("everybody hears of it", () => p.of("recalled")[0], () => p.updates);
      assert.deepEqual([told.event.seq, told.event.body, told.event.data, told.event.recalled], [3, undefined, undefined, true]);
      assert.ok(!JSON.stringify(p.client.events(conv, 1, 100)).includes("secret"));
    }
    await eventually("the outbox has forgotten it", () => !readFileSync(path, "utf8").includes("secret"));
    await refused(ana, { target: one, cmid: "r-2" }, "ALREADY_RECALLED");
    await refused(ben, { target: kept }, "NOT_SENDER");
    await refused(ana, { target: { seq: 1, epoch: one.epoch } }, "INVALID_ARGUMENT");
    await refused(ana, { target: { seq: 99, epoch: one.epoch } }, "NOT_FOUND");
    await refused(ana, { target: { seq: 3, epoch: one.epoch + 1 } }, "EPOCH_CHANGED");
    assert.equal(ben.events(conv).find((e) => e.seq === kept.seq)?.body, "stays");
  });

  it("comes back to 1 000 missed messages", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const network = await Proxy.to(gateway.url);
    t.after(() => network.close());
    const ana = await peer(t, conv, "u-ana", "d-m", { pipeline: 64 });
    const ben = await peer(t, conv, "u-ben", "d-mb", { url: network.url, window: 100 });
    const late = await Peer.open(house, gateway.url, "u-ben", "d-mb2", { start: (c) => (c === conv ? { epoch: 0, seq: 0 } : undefined) });
    for (const p of [ben, late]) await eventually("the joins are there", () => p.seqs(conv).length === 1);
    const { upTo } = late.client.events(conv, 1, 1);
    await late.client.close();
    network.down = true;
    network.cut();
    await eventually("it is offline", () => ben.client.state.state === "offline");
    const waits = await Promise.all(range(0, 999).map((i) => ana.client.send({ conv, cmid: `m-${i}`, body: `text ${i}` })));
    const last = await Promise.all(waits.map((w) => w.wait()));
    assert.deepEqual(last.map((s) => s.seq).sort((a, b) => a - b), range(3, 1002));
    assert.deepEqual(ben.seqs(conv), [2]);
    network.down = false;
    await eventually("everything has arrived", () => ben.seqs(conv).length === 1001, () => ben.seqs(conv).length);
    assert.deepEqual(ben.seqs(conv), range(2, 1002));
    assert.equal(new Set(ben.events(conv).map((e) => e.cmid)).size, 1001);
    const again = await peer(t, conv, "u-ben", "d-mb2", { start: (c: string) => (c === conv ? upTo : undefined) });
    await eventually("a new process goes on from where it was", () => again.seqs(conv).length === 1000);
    assert.deepEqual(again.seqs(conv), range(3, 1002));
  });

  it("sends again what got no answer, once", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const network = await Proxy.to(gateway.url);
    t.after(() => network.close());
    const path = join(temporary(t), "outbox");
    const ben = await peer(t, conv, "u-ben", "d-sb");
    const first = await Peer.open(house, network.url, "u-ana", "d-s", { outbox: new FileStorage(path) });
    await eventually("it is online", () => first.client.state.state === "online");
    network.mute = true;
    await first.client.send({ conv, cmid: "m-1", body: "one" });
    const lost = await first.client.send({ conv, cmid: "m-2", body: "two" });
    await eventually("the server has it", () => ben.seqs(conv).includes(3));
    assert.deepEqual((await first.client.waiting()).map((e) => [e.cmid, e.inDoubt]), [["m-1", true], ["m-2", false]]);
    await first.client.close(); // and another process takes the outbox
    assert.equal(codeOf(await lost.wait().catch((err: unknown) => err)), "OUTCOME_UNKNOWN");
    network.mute = false;
    const ana = await peer(t, conv, "u-ana", "d-s", { outbox: new FileStorage(path), url: network.url });
    await ana.client.flush();
    await eventually("it tells both", () => ana.of("ended").length === 2);
    assert.deepEqual(ana.of("ended").map((e) => [e.entry.cmid, e.sent?.seq, e.sent?.dup]), [["m-1", 3, true], ["m-2", 4, false]]);
    await eventually("both are there", () => ben.seqs(conv).length === 3);
    assert.deepEqual(ben.seqs(conv), [2, 3, 4]);
  });

  it("loses and repeats nothing over connections that are cut again and again", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const network = await Proxy.to(gateway.url);
    t.after(() => network.close());
    const peers = await Promise.all(["u-ana", "u-ben"].map((user) =>
      peer(t, conv, user, `d-cut-${user}`, { url: network.url, backoffMaxMs: 20, outbox: new FileStorage(join(temporary(t), "outbox")) })));
    const n = 60;
    let over = false;
    const sending = Promise.all(peers.map(async ({ client }) => {
      for (let i = 0; i < n; i++) {
        const p = await client.send({ conv, cmid: `m-${i}`, body: "text" });
        if (i % 4 === 0) await p.wait();
      }
      await client.flush();
    })).finally(() => (over = true));
    let cuts = 0;
    for (let next = 0; !over;) { // after each cut some messages get through, however slow the machine is
      await new Promise((resolve) => setTimeout(resolve, 1 + Math.random() * 5));
      const ended = peers.reduce((sum, p) => sum + p.of("ended").length, 0);
      if (ended < next) continue;
      next = ended + 1 + Math.floor(Math.random() * 8);
      cuts += network.cut();
    }
    await sending;
    assert.ok(cuts >= 5, `only ${cuts} connections were cut`);
    for (const [i, p] of peers.entries()) {
      await eventually("everything arrives", () => p.seqs(conv).length === 2 * n + 2 - i, () => p.seqs(conv));
      assert.deepEqual(p.seqs(conv), range(1 + i, 2 * n + 2));
      for (const sender of ["u-ana", "u-ben"]) {
        assert.deepEqual(p.events(conv).filter((e) => e.sender === sender && e.kind === "msg").map((e) => e.cmid), range(0, n - 1).map((i) => `m-${i}`));
      }
      assert.ok(!p.of("connection").some((c) => c.state === "stopped"));
    }
  });

  it("uses new tokens before the old ones end", async (t) => {
    const conv = await conversation("u-ana");
    let issued = 0;
    const life = 3000;
    const ana = await peer(t, conv, "u-ana", "d-t", {
      token: async () => {
        issued++;
        const expires = Date.now() + life;
        return { text: await house.token("u-ana", `${life}ms`), expires };
      },
    });
    await eventually("three tokens are used", () => issued >= 4);
    assert.ok((await (await ana.client.send({ conv, body: "still here" })).wait()).seq > 0);
    assert.deepEqual(ana.of("connection").map((c) => c.state), ["online"]);
  });

  it("goes on after the server has stopped, and takes its new history after a recovery", async (t) => {
    const conv = await conversation("u-ana", "u-ben");
    const ana = await peer(t, conv, "u-ana", "d-e", { outbox: new FileStorage(join(temporary(t), "outbox")) });
    const ben = await peer(t, conv, "u-ben", "d-eb");
    const first = await (await ana.client.send({ conv, cmid: "m-1", body: "one" })).wait();
    await (await ana.client.send({ conv, cmid: "m-2", body: "two" })).wait();
    for (const p of [ana, ben]) await eventually("it has arrived", () => p.seqs(conv).includes(4));
    await gateway.stop();
    await eventually("they are offline", () => [ana, ben].every((p) => p.client.state.state === "offline"));
    const waiting = await ana.client.send({ conv, cmid: "m-3", body: "three" });
    const old = await ana.client.recall({ conv, target: { seq: 3 }, cmid: "r-1" });
    await house.command("recover", "--without-journal");
    gateway = await house.serve(port);
    const sent = await waiting.wait();
    assert.notEqual(sent.epoch, first.epoch);
    await assert.rejects(old.wait(), { code: "EPOCH_CHANGED" });
    for (const [p, joined] of [[ana, 1], [ben, 2]] as const) {
      await eventually("everything arrives again", () => p.seqs(conv).length === sent.seq - joined + 1, () => p.updates);
      assert.deepEqual(p.of("dropped").map((d) => [d.conv, d.epoch, d.error]), [[conv, sent.epoch, undefined]]);
      assert.deepEqual(p.seqs(conv), range(joined, sent.seq));
      assert.deepEqual(p.events(conv).filter((e) => e.kind === "msg").map((e) => e.body), ["one", "two", "three"]);
    }
    assert.deepEqual(ana.of("lost"), []);
  });
});
