// The outbox of Node on the disk.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { lock } from "../src/node/lock.js";
import { FileStorage } from "../src/node.js";
import type { Stored, StoredEntry } from "../src/storage.js";
import { temporary } from "./support/paths.js";
import { eventually } from "./support/wait.js";

const entry = (cmid: string): StoredEntry => ({ conv: "c", cmid, body: `text\n of ${cmid}`, data: '{"n":1500.0}', at: 1792466430123 });
const sent = { seq: 7, mid: "mid", epoch: 100, at: 5, dup: false };

async function open(path: string, device = "d-1", install = ""): Promise<{ file: FileStorage; stored: Stored }> {
  const file = new FileStorage(path);
  return { file, stored: await file.open(device, install) };
}

it("has everything again", async (t) => {
  const path = join(temporary(t), "outbox");
  const { file, stored: empty } = await open(path);
  await Promise.all(Array.from({ length: 20 }, (_, i) => file.write({ op: "queue", entry: entry(`m-${i}`) })));
  await file.write({ op: "queue", entry: { ...entry("r-1"), target: { seq: 3, epoch: 100 } } });
  void file.write({ op: "sent", entry: entry("m-3"), sent });
  void file.write({ op: "end", conv: "c", cmid: "m-4" });
  void file.write({ op: "user", user: "u-ana" });
  await file.close();
  const { file: again, stored } = await open(path);
  t.after(() => again.close());
  assert.deepEqual([stored.install, stored.user], [empty.install, "u-ana"]);
  const left = [...Array(20).keys()].filter((i) => i !== 3 && i !== 4).map((i) => entry(`m-${i}`));
  assert.deepEqual(stored.waiting, [...left, { ...entry("r-1"), target: { seq: 3, epoch: 100 } }]);
  assert.deepEqual(stored.sent, [{ entry: entry("m-3"), sent }]);
});

it("can be torn anywhere", async (t) => {
  const path = join(temporary(t), "outbox");
  const { file } = await open(path);
  for (const cmid of ["m-0", "m-1"]) await file.write({ op: "queue", entry: entry(cmid) });
  await file.close();
  const whole = readFileSync(path);
  for (let size = whole.indexOf("\n") + 1; size <= whole.length; size++) {
    writeFileSync(path, whole.subarray(0, size));
    const lines = whole.subarray(0, size).toString().split("\n").length - 2;
    const first = await open(path);
    assert.equal(first.stored.waiting.length, lines, `after ${size} bytes`);
    await first.file.write({ op: "queue", entry: entry("later") });
    await first.file.close();
    const second = await open(path);
    assert.equal(second.stored.waiting.length, lines + 1, `after ${size} bytes and one more entry`);
    await second.file.close();
  }
});

it("is refused when it is another's, open, or damaged", async (t) => {
  const path = join(temporary(t), "outbox");
  const { file } = await open(path);
  await file.write({ op: "queue", entry: entry("m-1") });
  await assert.rejects(open(path), /another process uses it/);
  await file.close();
  await assert.rejects(file.write({ op: "queue", entry: entry("m-2") }), /closed/);
  await assert.rejects(open(path, "d-2"), /belongs to the device/);
  await assert.rejects(open(path, "d-1", "i-2"), /belongs to the installation/);
  const text = readFileSync(path, "utf8");
  for (const [damage, why] of [[`${text.replace('"queue"', '"que')}{}\n`, /line 2 is damaged/], [text.replace('"version":1', '"version":2'), /version 2/], ['{"a":1}\n', /no outbox/],
    ["", /no outbox/]] as const) {
    writeFileSync(path, damage);
    await assert.rejects(open(path), why);
  }
});

it("stays small, and remembers the newest of what was sent", async (t) => {
  const path = join(temporary(t), "outbox");
  const { file } = await open(path);
  for (let i = 0; i < 4000; i++) {
    void file.write({ op: "sent", entry: entry(`m-${i}`), sent });
    if (i % 2) void file.write({ op: "end", conv: "c", cmid: `m-${i}` });
    if (i % 100 === 0) await file.write({ op: "queue", entry: entry(`w-${i}`) });
  }
  await file.close();
  const lines = readFileSync(path, "utf8").split("\n").length;
  assert.ok(lines < 4500, `the file has ${lines} lines`);
  const { file: again, stored } = await open(path);
  t.after(() => again.close());
  assert.deepEqual([stored.waiting.length, stored.sent.length, stored.sent[0]?.entry.cmid], [40, 1000, "m-2000"]);
});

it("loses the content of what was recalled", async (t) => {
  const path = join(temporary(t), "outbox");
  const { file } = await open(path);
  const secret = { ...entry("m-1"), body: "a secret" };
  await file.write({ op: "queue", entry: secret });
  void file.write({ op: "sent", entry: secret, sent });
  void file.write({ op: "erase", conv: "c", cmid: "m-1" });
  await eventually("it is gone while the file is open", () => !readFileSync(path, "utf8").includes("secret"));
  await file.write({ op: "queue", entry: secret });
  void file.write({ op: "erase", conv: "c", cmid: "m-1" });
  await file.close();
  assert.ok(!readFileSync(path, "utf8").includes("secret"), "it is gone with the close");
});

describe("the lock", () => {
  for (const platform of [...new Set([process.platform, "darwin" as const])]) {
    it(`ends with its process (${platform})`, async (t) => {
      const path = join(temporary(t), "outbox");
      const other = fork(fileURLToPath(new URL("support/hold.js", import.meta.url)), [path, platform]);
      await once(other, "message");
      await assert.rejects(lock(path, platform), /another process uses it/);
      other.kill("SIGKILL");
      await once(other, "exit");
      const unlock = await eventually("it is free", () => lock(path, platform).catch(() => undefined));
      await assert.rejects(lock(path, platform), /another process uses it/);
      await unlock();
      await (await lock(path, platform))();
    });
  }
});
