// Plays a scenario: client/testdata/scenarios/README.md describes the form.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import { Client, codeOf, TidingsError, type Config, type Update } from "../../src/index.js";
import { FileStorage } from "../../src/node.js";
import type { StoredEntry } from "../../src/storage.js";
import { eventually } from "./wait.js";

export type Fields = Record<string, unknown>;

interface ScenarioEntry {
  conv: string;
  cmid: string;
  body?: string;
  age_ms?: number;
  seq?: number;
  epoch?: number;
  target?: number;
}

/** A file of client/testdata/scenarios. */
export interface Scenario {
  about: string;
  outbox?: ScenarioEntry[];
  sent?: ScenarioEntry[];
  pipeline?: number;
  acks?: boolean;
  request_timeout_ms?: number;
  start?: Record<string, { Epoch: number; Seq: number }>;
  steps: Record<string, Fields>[];
}

/** What a file can have; another key is one that this player would pass over. */
const KEYS = new Set(["about", "outbox", "sent", "pipeline", "acks", "request_timeout_ms", "start", "steps"]);

/** A handshake that waits for the script's decision. */
interface Knock {
  accept(): Promise<WebSocket>;
  refuse(how: Fields): void;
}

/** One scenario being played. */
export class Script {
  readonly #server: Server;
  readonly #sockets = new WebSocketServer({ noServer: true, handleProtocols: () => "tidings.v1" });
  readonly #knocks: Knock[] = [];
  #client!: Client;
  #conn: WebSocket | undefined;
  #rid: unknown; // of the frame that was expected last
  #frames: Fields[] = []; // of the present connection, not consumed
  #updates: Fields[] = []; // not consumed
  #refused: Fields | undefined; // the last refusal of a handshake

  constructor() {
    this.#server = createServer((req, res) => this.#ready(req, res));
    this.#server.on("upgrade", (req, socket, head) => this.#handshake(req, socket, head));
  }

  async play(sc: Scenario, dir: string): Promise<void> {
    for (const key of Object.keys(sc)) if (!KEYS.has(key)) throw new Error(`the scenario has ${key}, which is not known here`);
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    const path = join(dir, "outbox");
    await prepare(path, sc);
    const config: Config = {
      url: `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`,
      device: "d-1",
      install: "i-1",
      outbox: new FileStorage(path),
      handle: (u) => void this.#updates.push(told(u)),
      ackEveryMs: sc.acks ? 1 : -1,
      backoffMinMs: 1,
      backoffMaxMs: 20,
      token: () => ({ text: "a token" }),
    };
    if (sc.pipeline) config.pipeline = sc.pipeline;
    if (sc.request_timeout_ms) config.requestTimeoutMs = sc.request_timeout_ms;
    const { start } = sc;
    if (start) config.start = (conv) => start[conv] && { epoch: start[conv].Epoch, seq: start[conv].Seq };
    this.#client = await Client.open(config);
    for (const [i, step] of sc.steps.entries()) {
      for (const [what, arg] of Object.entries(step)) {
        try {
          await this.#step(what, arg);
        } catch (cause) {
          throw new Error(`step ${i + 1} (${what}): ${String(cause)}`, { cause });
        }
      }
    }
    await this.#nothingElse();
  }

  async close(): Promise<void> {
    await this.#client?.close();
    this.#conn?.terminate();
    this.#sockets.close();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** What a browser reads in place of a refused handshake: a server or proxy that refuses the one answers the other alike. */
  #ready(req: IncomingMessage, res: ServerResponse): void {
    if (req.url !== "/readyz") throw new Error(`the client asks for ${req.url}`);
    const { status = 200, retry_after: after } = this.#refused ?? {};
    res.writeHead(Number(status), after === undefined ? {} : { "Retry-After": String(after) });
    res.end();
  }

  #handshake(req: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#knocks.push({
      accept: () => new Promise((resolve) => this.#sockets.handleUpgrade(req, socket, head, resolve)),
      refuse: (how) => {
        this.#refused = how;
        const after = how["retry_after"] === undefined ? "" : `Retry-After: ${String(how["retry_after"])}\r\n`;
        socket.end(`HTTP/1.1 ${String(how["status"])} Refused\r\nConnection: close\r\nContent-Length: 0\r\n${after}\r\n`);
      },
    });
  }

  /** Does one step of the script. */
  async #step(what: string, arg: Fields): Promise<void> {
    const conv = String(arg["conv"] ?? "");
    const cmid = String(arg["cmid"] ?? "");
    switch (what) {
      case "refuse":
        return (await this.#knock()).refuse(arg);
      case "accept":
        return this.#accept(arg);
      case "expect": {
        const f = await this.#find("frames", (f) => subset(arg, f));
        this.#rid = f["rid"];
        return;
      }
      case "reply":
        return this.#write({ ...arg, rid: this.#rid });
      case "push":
        return this.#write(arg);
      case "close":
        return this.#conn?.close(Number(arg["code"]));
      case "cut":
        return this.#conn?.terminate();
      case "send": {
        const body = String(arg["body"] ?? "") + "\u0001".repeat(Number(arg["escapes"] ?? 0));
        return answeredWith(arg, () => this.#client.send({ conv, cmid, body }));
      }
      case "recall": {
        const target = { seq: Number(arg["target"] ?? 0), epoch: Number(arg["epoch"] ?? 0) };
        return answeredWith(arg, () => this.#client.recall({ conv, cmid, target }));
      }
      case "resend":
        return this.#client.resend(conv, cmid);
      case "discard":
        return this.#client.discard(conv, cmid);
      case "read":
        return this.#client.markRead(conv, Number(arg["seq"]));
      case "reconnect":
        return this.#client.reconnect();
      case "update": {
        // Of each type the next one counts, but states may be skipped.
        const u = await this.#find("updates", (u) => u["type"] === arg["type"] && (arg["type"] !== "connection" || subset(arg, u)));
        if (!subset(arg, u)) throw new Error(`got ${JSON.stringify(u)}`);
        return;
      }
      default:
        throw new Error("there is no such step");
    }
  }

  #knock(): Promise<Knock> {
    return eventually("somebody connects", () => this.#knocks.shift());
  }

  /** Takes the next connection, expects its hello and answers it and the question for the conversations. */
  async #accept(arg: Fields): Promise<void> {
    const conn = await (await this.#knock()).accept();
    this.#conn = conn;
    this.#frames = [];
    conn.on("message", (data) => {
      if (this.#conn === conn) this.#frames.push(JSON.parse(String(data)) as Fields);
    });
    await this.#step("expect", { t: "hello", device: "d-1", install: "i-1", token: "a token" });
    if (arg["lost"] === true) return this.#step("cut", {});
    if (arg["error"]) return this.#write({ ...(arg["error"] as Fields), rid: this.#rid });
    const limits = { frame: 65536, body: 16384, data: 8192, inflight: 256, page: 500, ...(arg["limits"] as Fields) };
    const user = arg["user"] ?? "u-ana";
    this.#write({ t: "welcome", rid: this.#rid, user, device: "d-1", connection: "c-1", now: 1, ping_ms: 25000, limits, features: [] });
    if (user !== "u-ana") return;
    await this.#step("expect", { t: "conversations" });
    this.#write({ t: "conversations", rid: this.#rid, list: arg["list"] ?? [], more: false });
  }

  #write(f: Fields): void {
    this.#conn?.send(JSON.stringify(f));
  }

  /** Waits for the first one that fits and takes it out. */
  #find(what: "frames" | "updates", fits: (f: Fields) => boolean): Promise<Fields> {
    const list = (): Fields[] => (what === "frames" ? this.#frames : this.#updates);
    return eventually("it comes", () => {
      const at = list().findIndex(fits);
      return at >= 0 && list().splice(at, 1)[0];
    }, () => ({ frames: this.#frames, updates: this.#updates }));
  }

  /** Makes sure that the client has nothing more to say: it answers a ping with a pong and had sent nothing else before. */
  async #nothingElse(): Promise<void> {
    if (this.#client.state.state === "online") {
      this.#write({ t: "ping" });
      await this.#step("expect", { t: "pong" });
    }
    if (this.#frames.length > 0) throw new Error(`the client has also sent ${JSON.stringify(this.#frames)}`);
    const more = this.#updates.filter((u) => u["type"] !== "connection" && u["type"] !== "read_moved");
    if (more.length > 0) throw new Error(`the client has also told ${JSON.stringify(more)}`);
  }
}

/** Does what the application does, and compares the refusal that it gets at once. */
async function answeredWith(arg: Fields, act: () => Promise<unknown>): Promise<void> {
  const err: unknown = await act().then(() => undefined, (err: unknown) => err);
  if (codeOf(err) !== (arg["code"] ?? "")) throw new Error(`it is answered with ${String(err)}`);
}

/** Writes what an earlier process left in the outbox. */
async function prepare(path: string, sc: Scenario): Promise<void> {
  const file = new FileStorage(path);
  await file.open("d-1", "i-1");
  await file.write({ op: "user", user: "u-ana" });
  const entry = (e: ScenarioEntry): StoredEntry => ({ conv: e.conv, cmid: e.cmid, body: e.body ?? "", at: Date.now() - (e.age_ms ?? 0) });
  for (const e of sc.outbox ?? []) {
    await file.write({ op: "queue", entry: e.target ? { ...entry(e), target: { seq: e.target, epoch: e.epoch ?? 0 } } : entry(e) });
  }
  for (const e of sc.sent ?? []) {
    await file.write({ op: "sent", entry: entry(e), sent: { seq: e.seq ?? 0, epoch: e.epoch ?? 0, mid: "", at: 0, dup: false } });
  }
  await file.close();
}

/** What the client tells, in the words of the scenarios. */
function told(u: Update): Fields {
  const code = "error" in u ? codeOf(u.error) : "";
  switch (u.type) {
    case "connection":
      return { type: u.type, state: u.state, code: u.code ?? 0 };
    case "arrived":
    case "recalled":
      return { ...u.event, type: u.type, conv: u.conv, epoch: u.epoch, recalled: u.event.recalled ?? false };
    case "ended": {
      const { cmid, body, target } = u.entry;
      const seq = u.sent?.seq ?? (u.error instanceof TidingsError ? u.error.seq : 0);
      return { type: u.type, cmid, body, target: target?.seq ?? 0, seq, dup: u.sent?.dup ?? false, code };
    }
    case "asked":
      return { type: u.type, cmid: u.entry.cmid, target: u.entry.target?.seq ?? 0, code };
    case "lost":
      return { type: u.type, cmid: u.entry.cmid, body: u.entry.body, seq: u.sent.seq };
    case "dropped":
      return { type: u.type, conv: u.conv, epoch: u.epoch, code };
    default:
      return { ...u };
  }
}

/** Tells whether has has everything that want names; null is what must not be there. */
function subset(want: Fields, has: Fields): boolean {
  return Object.entries(want).every(([key, w]) => (w === null ? has[key] === undefined : key in has && String(has[key]) === String(w)));
}
