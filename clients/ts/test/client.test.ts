// What the client does by itself, whatever the server says.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { it } from "node:test";
import { WebSocketServer } from "ws";
import { Client, ClosedError, codeOf, DiscardedError, type Config, type Update } from "../src/index.js";
import { readyUrl, settle, socketUrl } from "../src/config.js";
import { dataText } from "../src/check.js";
import { eventually } from "./support/wait.js";

/** A client of a server that is not there. */
async function alone(t: { after(f: () => Promise<void>): void }, more: Partial<Config> = {}): Promise<{ client: Client; updates: Update[] }> {
  const updates: Update[] = [];
  const client = await Client.open({
    url: "ws://127.0.0.1:1", device: "d-1", token: () => ({ text: "t" }), backoffMinMs: 3_600_000, backoffMaxMs: 3_600_000, handle: (u) => void updates.push(u), ...more,
  });
  t.after(() => client.close());
  return { client, updates };
}

it("refuses at once what the server would refuse", async (t) => {
  const { client } = await alone(t, { maxOutbox: 2 });
  const send = (cmid: string, body: string, data?: object): Promise<string> => client.send({ conv: "c", cmid, body, ...(data ? { data } : {}) }).then(() => "", codeOf);
  for (const [cmid, body, want, data] of [
    ["a", "one", ""], ["a", "one", ""], ["a", "two", "IDEMPOTENCY_MISMATCH"], ["a", "one", "IDEMPOTENCY_MISMATCH", {}], ["a b", "x", "INVALID_ARGUMENT"], ["", "x", "INVALID_ARGUMENT"],
    ["ü", "x", "INVALID_ARGUMENT"], ["b", "x".repeat(16385), "TOO_LARGE"], ["b", "ü".repeat(8193), "TOO_LARGE"], ["b", "\u0001".repeat(11_000), "TOO_LARGE"],
    ["b", "a\0", "INVALID_ARGUMENT"], ["b", "\ud800", "INVALID_ARGUMENT"], ["b", "x", "INVALID_ARGUMENT", []], ["b", "x", "INVALID_ARGUMENT", { a: "\0" }],
    ["b", "x", "INVALID_ARGUMENT", { "\udc00": 1 }], ["b", "x", "TOO_LARGE", { a: "x".repeat(8192) }], ["b", "x", "", { a: [1, null, "😀"] }], ["d", "x", "RATE_LIMITED"],
  ] as [string, string, string, object?][]) {
    assert.equal(await send(cmid, body, data), want, `${cmid} ${body.slice(0, 10)} ${JSON.stringify(data)?.slice(0, 20)}`);
  }
  const waiting = await client.waiting();
  assert.deepEqual(waiting.map((e) => [e.cmid, e.data, e.inDoubt]), [["a", undefined, false], ["b", { a: [1, null, "😀"] }, false]]);
  await assert.rejects(client.flush(AbortSignal.timeout(5)), { code: "UNAVAILABLE" });
  await assert.rejects(client.sync("c", AbortSignal.timeout(5)), { code: "UNAVAILABLE" });
  await assert.rejects(client.conversations(AbortSignal.timeout(5)), { code: "UNAVAILABLE" });
});

it("judges data as the database does", () => {
  const nested = (n: number): object => (n === 0 ? {} : { a: nested(n - 1) });
  assert.equal(dataText({ b: 1500.0, a: new Date(0) }), '{"b":1500,"a":"1970-01-01T00:00:00.000Z"}');
  dataText(nested(31));
  assert.throws(() => dataText(nested(32)), { code: "INVALID_ARGUMENT" });
  dataText({ a: Array(13).fill(1e300) });
  assert.throws(() => dataText({ a: Array(14).fill(1e300) }), { code: "INVALID_ARGUMENT" });
  assert.throws(() => dataText(() => {}), { code: "INVALID_ARGUMENT" });
});

it("checks its configuration", () => {
  const good: Config = { url: "https://chat.example.org", device: "d", token: () => ({ text: "t" }) };
  for (const bad of [{ url: "localhost:8080" }, { url: "ftp://a" }, { device: "" }, { device: "a b" }, { install: "a/b" }, { token: undefined }]) {
    assert.throws(() => settle({ ...good, ...bad } as Config), { code: "INVALID_ARGUMENT" }, JSON.stringify(bad));
  }
  assert.equal(settle(good).url, "wss://chat.example.org/v1/ws");
  assert.equal(socketUrl("http://a:1/chat/v1/ws"), "ws://a:1/chat/v1/ws");
  assert.equal(readyUrl("wss://a/v1/ws"), "https://a/readyz");
  assert.equal(readyUrl("ws://a:1/chat/v1/ws?x=1"), "http://a:1/chat/readyz");
  assert.equal(readyUrl("ws://a/elsewhere"), "http://a/readyz");
});

it("ends what waits when it is closed, and what is discarded", async (t) => {
  const { client } = await alone(t);
  const kept = await client.send({ conv: "c", body: "x" });
  const gone = await client.send({ conv: "c", body: "y" });
  await client.discard("c", gone.cmid);
  await assert.rejects(gone.wait(), DiscardedError);
  await assert.rejects(kept.wait(AbortSignal.timeout(5)), { code: "OUTCOME_UNKNOWN" });
  const ends = [kept.wait(), client.flush(), client.sync("c"), client.fetch("c", { epoch: 0, seq: 1 })].map((p) => p.then(() => "", codeOf));
  await client.close();
  assert.deepEqual(await Promise.all(ends), ["OUTCOME_UNKNOWN", "INTERNAL", "INTERNAL", "INTERNAL"]);
  await assert.rejects(client.send({ conv: "c", body: "x" }), ClosedError);
  assert.equal(client.state.state, "stopped");
});

it("waits as long as the server says, and longer", async (t) => {
  const server = createServer((_, res) => res.writeHead(503, { "Retry-After": "5" }).end());
  server.on("upgrade", (_, socket) => socket.end("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { updates } = await alone(t, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, backoffMinMs: 100, backoffMaxMs: 100 });
  const told = await eventually("it says how long it waits", () => updates.find((u) => u.type === "connection"));
  assert.ok(told.type === "connection" && told.state === "offline" && (told.retryMs ?? 0) >= 5000 && (told.retryMs ?? 0) <= 5100, JSON.stringify(told));
});

it("pauses at random, longer each time, up to a bound", async (t) => {
  const { updates, client } = await alone(t, { backoffMinMs: 1, backoffMaxMs: 4 });
  const offline = (): number[] => updates.flatMap((u) => (u.type === "connection" && u.state === "offline" ? [u.retryMs ?? Infinity] : []));
  await eventually("many attempts", () => offline().length > 40);
  await client.close();
  const pauses = offline();
  assert.ok(pauses.every((ms, i) => ms >= 0 && ms <= Math.min(2 ** i, 4)), String(pauses));
  assert.ok(Math.max(...pauses) > 2 && Math.min(...pauses.slice(3)) < 2, String(pauses));
});

it("gives a connection up that says nothing, and one whose frames it cannot read", async (t) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => "tidings.v1" });
  await once(server, "listening");
  const welcome = (limit: object): string => JSON.stringify({ t: "welcome", rid: "1", user: "u-ana", ping_ms: -19_950, limits: {}, features: [], ...limit });
  const heard: string[] = [];
  let connections = 0;
  server.on("connection", (socket) => {
    const first = ++connections === 1;
    socket.on("message", (m) => {
      const f = JSON.parse(String(m)) as { t: string; rid: string };
      heard.push(f.t);
      if (f.t === "hello") socket.send(welcome(first ? {} : { ping_ms: 25_000 }));
      if (f.t === "conversations" && !first) socket.send('{"t":"lag","conv":"c","epoch":9007199254740993,"head":1}');
    });
  });
  t.after(() => {
    for (const socket of server.clients) socket.terminate();
    server.close();
  });
  const { updates } = await alone(t, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, backoffMinMs: 1, backoffMaxMs: 1 });
  const why = (text: RegExp): boolean => updates.some((u) => u.type === "connection" && text.test(u.error?.message ?? ""));
  await eventually("it gives up the silent one", () => why(/says nothing any more/), () => updates);
  await eventually("it gives up the one that cannot be read", () => why(/below 2\^53/), () => updates);
});

it("goes on when the application fails, and lets the failure be seen", async (t) => {
  const seen: unknown[] = [];
  const watch = (err: unknown): void => void seen.push(err);
  process.setUncaughtExceptionCaptureCallback(watch);
  t.after(() => process.setUncaughtExceptionCaptureCallback(null));
  let calls = 0;
  await alone(t, {
    backoffMinMs: 1, backoffMaxMs: 1,
    handle: () => {
      if (++calls === 1) throw new Error("of the application");
    },
  });
  await eventually("it is called again", () => calls > 2);
  assert.match(String(seen[0]), /of the application/);
});
