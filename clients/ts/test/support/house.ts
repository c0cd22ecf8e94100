// A real server: PostgreSQL of `tidings dev`, and gateways of `tidings serve` beside it.

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { lstatSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, type Config, type Update } from "../../src/index.js";
import type { Event } from "../../src/wire.js";
import { REPOSITORY } from "./paths.js";
import { eventually } from "./wait.js";

const run = promisify(execFile);

// A test that is interrupted takes its processes along, and the database its data.
const running = new Set<House>();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => void Promise.all([...running].map((h) => h.stop())).finally(() => process.exit(1)));
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

/** A process of `tidings serve`. */
export interface Gateway {
  url: string;
  stop(): Promise<void>;
}

/** The server, from outside: its program, its HTTP, its sockets. */
export class House {
  readonly #dir = mkdtempSync(join(tmpdir(), "tidings-ts-house-"));
  readonly #processes = new Set<ChildProcess>();
  readonly #tokens = new Map<string, Promise<string>>();
  #program = process.env["TIDINGS_BIN"] ?? "";
  #database = "";
  #key = "";
  #secret = "";
  #api = "";

  /** Builds the program, unless TIDINGS_BIN names one, and starts the database. */
  static async start(): Promise<House> {
    const h = new House();
    running.add(h);
    try {
      if (!h.#program) {
        h.#program = join(h.#dir, "tidings");
        await run("go", ["build", "-o", h.#program, "./cmd/tidings"], { cwd: REPOSITORY });
      }
      const ports = await Promise.all(["port", "smtp-port", "receiver-port", "doubles-port"].map(async (name) => `--${name}=${await freePort()}`));
      let said = "";
      const dev = h.#spawn(["dev", "--dir", join(h.#dir, "dev"), ...ports], {});
      dev.stdout?.on("data", (part: Buffer) => (said += part.toString()));
      const word = (name: string): string => new RegExp(`^${name} +(\\S+)`, "m").exec(said)?.[1] ?? "";
      await eventually("the database is there", () => said.includes("Ctrl-C stops everything") || dev.exitCode !== null, () => said);
      if (dev.exitCode !== null) throw new Error(`tidings dev has ended with ${dev.exitCode}: ${said}`);
      [h.#database, h.#api] = [word("database"), word("API")];
      h.#key = readFileSync(join(h.#dir, "dev/key"), "utf8");
      h.#secret = readFileSync(join(h.#dir, "dev/secret"), "utf8");
    } catch (err) {
      await h.stop();
      throw err;
    }
    return h;
  }

  async stop(): Promise<void> {
    running.delete(this);
    await Promise.all([...this.#processes].map((p) => end(p)));
    const data = join(this.#dir, "dev/pg"); // for root it lies elsewhere, behind a link
    if (lstatSync(data, { throwIfNoEntry: false })?.isSymbolicLink()) rmSync(realpathSync(data), { recursive: true, force: true });
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** Runs a command of the program and returns what it says. */
  async command(...args: string[]): Promise<string> {
    return (await run(this.#program, args, { env: this.#env() })).stdout;
  }

  /** Starts a gateway and waits until it serves. */
  async serve(port: number, ...args: string[]): Promise<Gateway> {
    const url = `http://127.0.0.1:${port}`;
    const p = this.#spawn(["serve", "--roles=api,gateway", `--listen=127.0.0.1:${port}`, "--gateway-rate=100000", "--gateway-drain=1s", "--log-level=error", ...args], this.#env());
    await eventually("the gateway serves", () => p.exitCode !== null || fetch(`${url}/readyz`).then((r) => r.ok, () => false), () => p.spawnargs);
    if (p.exitCode !== null) throw new Error(`the gateway has ended with ${p.exitCode}`);
    return { url, stop: () => end(p) };
  }

  async create(conv: string, ...members: string[]): Promise<void> {
    await this.#put(`conversations/${conv}`, { recall_window_ms: 120_000, members });
  }

  async #put(path: string, body: object): Promise<void> {
    const headers = { Authorization: `Bearer ${this.#key}`, "Content-Type": "application/json" };
    const answer = await fetch(`${this.#api}/v1/${path}`, { method: "PUT", headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`PUT ${path}: ${answer.status} ${await answer.text()}`);
  }

  /** A token of a user, as the command signs it. */
  token(user: string, life = "1h"): Promise<string> {
    const sign = (): Promise<string> => this.command("token", "issue", user, "--for", life).then((text) => text.trim());
    if (life !== "1h") return sign();
    const signed = this.#tokens.get(user) ?? sign();
    this.#tokens.set(user, signed);
    return signed;
  }

  #env(): NodeJS.ProcessEnv {
    return { ...process.env, TIDINGS_DATABASE_URL: this.#database, TIDINGS_TOKEN_HS256_SECRET: this.#secret };
  }

  #spawn(args: string[], env: NodeJS.ProcessEnv): ChildProcess {
    const p = spawn(this.#program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
    this.#processes.add(p);
    p.once("exit", () => this.#processes.delete(p));
    return p;
  }
}

async function end(p: ChildProcess): Promise<void> {
  if (p.exitCode !== null || p.signalCode !== null) return;
  const over = once(p, "exit");
  p.kill("SIGTERM");
  const hard = setTimeout(() => p.kill("SIGKILL"), 15_000);
  await over;
  clearTimeout(hard);
}

/** A client, and everything that it was told. */
export class Peer {
  readonly client: Client;
  readonly updates: Update[];

  private constructor(client: Client, updates: Update[]) {
    this.client = client;
    this.updates = updates;
  }

  static async open(house: House, url: string, user: string, device: string, more: Partial<Config> = {}): Promise<Peer> {
    const updates: Update[] = [];
    const client = await Client.open({
      url, device, token: async () => ({ text: await house.token(user), expires: Date.now() + 3_600_000 }), handle: (u) => void updates.push(u), ackEveryMs: 10,
      backoffMinMs: 10, backoffMaxMs: 100, ...more,
    });
    return new Peer(client, updates);
  }

  of<T extends Update["type"]>(type: T): Extract<Update, { type: T }>[] {
    return this.updates.filter((u): u is Extract<Update, { type: T }> => u.type === type);
  }

  /** The events that have arrived, of the newest history of a conversation. */
  events(conv: string): Event[] {
    const from = this.updates.findLastIndex((u) => u.type === "dropped" && u.conv === conv) + 1;
    return this.updates.slice(from).filter((u) => u.type === "arrived" && u.conv === conv).map((u) => (u as Extract<Update, { type: "arrived" }>).event);
  }

  seqs(conv: string): number[] {
    return this.events(conv).map((e) => e.seq);
  }
}
