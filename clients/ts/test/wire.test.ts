// internal/wire/testdata has one example of every frame: what the server writes is read, and what it reads is written, byte for byte.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { decode, encode, KNOWN, PONG, refusal, type Request } from "../src/wire.js";
import { REPOSITORY } from "./support/paths.js";

const DIR = join(REPOSITORY, "internal/wire/testdata");
type Fields = Record<string, unknown>;

/** The files by their names, without the newline at the end; of the errors each line is one. */
function examples(prefix: RegExp): [name: string, text: string][] {
  return readdirSync(DIR).filter((name) => name.endsWith(".json") && prefix.test(name)).sort().flatMap((name): [string, string][] => {
    const text = readFileSync(join(DIR, name), "utf8").trimEnd();
    if (name !== "reply-errors.json") return [[name, text]];
    return (JSON.parse(text) as unknown[]).map((e, i) => [`${name} ${i + 1}`, JSON.stringify(e)]);
  });
}

describe("requests are written as the examples", () => {
  const seen = new Set<string>();
  for (const [name, text] of examples(/^request-/)) {
    it(name, () => {
      const { rid, ...request } = JSON.parse(text) as Fields & { t: string; rid: string };
      seen.add(request.t);
      // The text of data is what counts, and it stands at the end.
      if (request["data"]) request["data"] = text.slice(text.indexOf('"data":') + 7, -1);
      assert.equal(request.t === "pong" ? PONG : encode(request as unknown as Request, rid), text);
    });
  }
  it("all of them", () => {
    const all = ["ack", "conversations", "fetch", "hello", "outcome", "pong", "read", "recall", "refresh", "send", "sync"];
    assert.deepEqual([...seen].sort(), all);
  });
});

describe("frames are read as the examples say", () => {
  const seen = new Set<string>();
  const fields = new Set(Object.keys(decode('{"t":"ping"}')));
  const inEvents = new Set(["conv", "seq", "kind", "mid", "sender", "sdev", "cmid", "body", "data", "recalled", "target", "actor", "at"]);
  for (const [name, text] of examples(/^(reply|push)-/)) {
    it(name, () => {
      const raw = JSON.parse(text) as Fields;
      const f = decode(text);
      seen.add(f.t);
      for (const [key, value] of Object.entries(raw)) {
        assert.ok(fields.has(key) || key === "event", `${key} is not known`);
        assert.deepEqual(f[key as keyof typeof f], value);
      }
      for (const event of [...f.events, ...(f.event ? [f.event] : [])]) {
        for (const key of Object.keys(event)) assert.ok(inEvents.has(key), `${key} of an event is not known`);
      }
      assert.deepEqual(decode(JSON.stringify(f)), f);
      if (f.t !== "error") return assert.equal(refusal(f), undefined);
      const { code, message, retryAfterMs, epoch, head, seq } = refusal(f) ?? {};
      const zeros = { retry_after_ms: 0, epoch: 0, head: 0, seq: 0, ...raw };
      assert.deepEqual([code, message, retryAfterMs, epoch, head, seq], [raw["code"], raw["message"], zeros.retry_after_ms, zeros.epoch, zeros.head, zeros.seq]);
    });
  }
  it("all of them", () => assert.deepEqual([...seen].sort(), [...KNOWN].sort()));
});

it("lives with what a later server says", () => {
  for (const [text, want] of Object.entries<Fields>({
    '{"t":"signal","conv":7,"event":"typing"}': { t: "signal", conv: "", event: undefined },
    '{"t":"later","rid":"3","head":{}}': { t: "later", rid: "3", head: 0 },
    '{"t":"lag","conv":"c","epoch":1,"head":2,"colour":["x"]}': { t: "lag", conv: "c", epoch: 1, head: 2 },
    '{"t":"error","code":"LATER","message":"m","retry":"same"}': { t: "error", code: "LATER", message: "m", retry: "same" },
    '{"t":"event","epoch":9007199254740991,"event":{"conv":"c","seq":1,"kind":"poll","sender":"u","at":1,"answers":[1],"body":null,"data":{"n":1e300}}}': {
      epoch: 9007199254740991, event: { conv: "c", seq: 1, kind: "poll", sender: "u", at: 1, answers: [1], data: { n: 1e300 } },
    },
  })) {
    const f = decode(text) as unknown as Fields;
    for (const [key, value] of Object.entries(want)) assert.deepEqual(f[key], value, text);
  }
});

it("refuses what is no frame, and numbers that are not exact", () => {
  for (const text of ["", "[]", '"x"', "{}", '{"rid":5}', '{"t":"lag","head":"2"}', '{"t":"lag","head":1.5}', '{"t":"event","event":[]}', '{"t":"ping"',
    '{"t":"lag","conv":"c","epoch":9007199254740992,"head":1}', '{"t":"events","events":[{"seq":9007199254740993}]}', '{"t":"events","events":{}}',
    '{"t":"events","withheld":[{"from":1,"to":2,"why":3}]}', '{"t":"welcome","limits":{"frame":"big"}}']) {
    assert.throws(() => decode(text), Error, text);
  }
});
