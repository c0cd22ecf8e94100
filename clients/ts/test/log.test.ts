// The copy of a log, whatever comes in whichever order.

import assert from "node:assert/strict";
import { it } from "node:test";
import { Log } from "../src/log.js";
import type { Event } from "../src/wire.js";

const message = (seq: number): Event => ({ conv: "c", seq, kind: "msg", sender: "u", cmid: `m-${seq}`, body: `text ${seq}`, at: seq });
const recall = (seq: number, target: number): Event => ({ conv: "c", seq, kind: "recall", sender: "u", target, at: seq });
const gone = (seq: number): Event => {
  const { body: _, ...e } = message(seq);
  return { ...e, recalled: true };
};

/** Numbers that look random and are the same in each run (mulberry32, public domain, Tommy Ettinger). */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// The server's log has recalls; pushes show messages as they were or as they are, in any order, lost and repeated; pages fill the holes.
it("comes to the server's log from any pushes", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const rnd = random(seed);
    const below = (n: number): number => Math.floor(rnd() * n);
    const events: Event[] = [];
    const withheld = new Set<number>();
    for (let seq = 1; seq <= 30; seq++) {
      const target = rnd() < 0.3 ? 1 + below(seq) : 0;
      if (target > 0 && target < seq && events[target - 1]?.kind === "msg" && !withheld.has(target)) {
        events[target - 1] = gone(target);
        events.push(recall(seq, target));
      } else {
        events.push(message(seq));
        if (rnd() < 0.1) withheld.add(seq);
      }
    }
    const log = new Log({ epoch: 1, seq: 0 });
    for (let i = 0; i < 60; i++) {
      const seq = 1 + below(30);
      const event = events[seq - 1] as Event;
      if (withheld.has(seq)) continue;
      log.add(event.recalled && rnd() < 0.5 ? message(seq) : event); // an old copy may come late
      if (rnd() < 0.2 && log.cursor < log.head) sync(log, events, withheld, Math.min(log.gap(), 1 + below(5)));
    }
    log.head = 30;
    while (log.cursor < 30) sync(log, events, withheld, log.gap());
    for (let seq = 1; seq <= 30; seq++) {
      const piece = log.find(seq);
      if (withheld.has(seq)) assert.equal(piece?.why, "not_member", `seed ${seed}, seq ${seq}`);
      else assert.deepEqual(piece?.event, events[seq - 1], `seed ${seed}, seq ${seq}`);
    }
    assert.ok(log.run.every((p, i) => p.from === (log.run[i - 1]?.to ?? 0) + 1), `seed ${seed}: there is a hole`);
  }
});

function sync(log: Log, events: Event[], withheld: Set<number>, limit: number): void {
  const seqs = events.map((e) => e.seq).filter((seq) => seq > log.cursor).slice(0, Math.max(limit, 1));
  const page = seqs.filter((seq) => !withheld.has(seq)).map((seq) => events[seq - 1] as Event);
  const ranges = seqs.filter((seq) => withheld.has(seq)).map((seq) => ({ from: seq, to: seq, why: "not_member" }));
  assert.ok(log.page(log.cursor, page, ranges).ok);
}

it("refuses a page with a hole, or behind one", () => {
  const log = new Log({ epoch: 1, seq: 0 });
  assert.equal(log.page(3, [message(4)], []).ok, false);
  assert.equal(log.page(0, [message(1), message(3)], []).ok, false);
  assert.equal(log.cursor, 1);
  assert.equal(log.page(1, [], [{ from: 3, to: 4, why: "trimmed" }]).ok, false);
  assert.equal(log.page(0, [message(2)], [{ from: 1, to: 1, why: "trimmed" }]).ok, true);
  assert.equal(log.cursor, 2);
});

it("tells which events have lost their content", () => {
  const log = new Log({ epoch: 1, seq: 0 });
  for (const seq of [1, 2, 3]) log.add(message(seq));
  const shown = log.find(2)?.event;
  assert.deepEqual(log.add(recall(4, 2)), [2]);
  assert.deepEqual(log.add(recall(5, 2)), []);
  assert.deepEqual(log.add(gone(3)), [3]);
  assert.equal(shown?.body, "text 2", "what was handed out is not changed");
  assert.equal(log.find(2)?.event?.body, undefined);
  assert.deepEqual(log.add(message(2)), []);
  assert.equal(log.find(2)?.event?.recalled, true);
});

it("keeps a bounded number of early events, and of old ones", () => {
  const log = new Log({ epoch: 1, seq: 0 });
  for (let seq = 2; seq <= 2000; seq++) log.add(message(seq));
  log.add(message(1));
  assert.equal(log.cursor, 513);
  assert.equal(log.head, 2000);
  for (let seq = 514; seq <= 2000; seq++) log.add(message(seq));
  log.forget(1500, 100);
  assert.deepEqual([log.run.length, log.run[0]?.from], [600, 1401]);
  assert.deepEqual(log.events(1, 2).map((e) => e.seq), [1401, 1402]);
});
