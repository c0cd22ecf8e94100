// A real `tidings dev`, built once, in a directory and on ports of its own.

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { lstatSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { DevState } from "../../src/dev.js";
import { eventually } from "./wait.js";

const run = promisify(execFile);

/** The tests run from build/test/support. */
const REPOSITORY = fileURLToPath(new URL("../../../../../", import.meta.url));

// A test that is interrupted takes its processes along, and the database its data.
const running = new Set<Dev>();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => void Promise.all([...running].map((d) => d.stop())).finally(() => process.exit(1)));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

/** `tidings dev`, from outside. */
export class Dev {
  readonly #dir = mkdtempSync(join(tmpdir(), "tidings-web-"));
  #process: ChildProcess | undefined;
  #program = process.env["TIDINGS_BIN"] ?? "";
  #said = "";
  readonly #beside: ChildProcess[] = [];
  /** http://127.0.0.1 and the port, without a slash at the end. */
  url = "";

  /** Builds the program, unless TIDINGS_BIN names one, starts it, and waits until all its devices have a gateway. */
  static async start(): Promise<Dev> {
    const d = new Dev();
    running.add(d);
    try {
      await d.#start();
    } catch (err) {
      await d.stop();
      throw err;
    }
    return d;
  }

  async #start(): Promise<void> {
    if (!this.#program) {
      this.#program = join(this.#dir, "tidings");
      await run("go", ["build", "-o", this.#program, "./cmd/tidings"], { cwd: REPOSITORY });
    }
    const port = await freePort();
    const others = await Promise.all(["smtp-port", "receiver-port", "doubles-port"].map(async (name) => `--${name}=${await freePort()}`));
    const p = spawn(this.#program, ["dev", "--dir", join(this.#dir, "dev"), `--port=${port}`, ...others], { stdio: ["ignore", "pipe", "inherit"] });
    this.#process = p;
    this.url = `http://127.0.0.1:${port}`;
    p.stdout?.on("data", (part: Buffer) => (this.#said += part.toString()));
    await eventually("tidings dev is there", async () => p.exitCode !== null || (await this.#ready()), () => this.#said);
    if (p.exitCode !== null) throw new Error(`tidings dev has ended with ${p.exitCode}: ${this.#said}`);
  }

  async #ready(): Promise<boolean> {
    try {
      return (await this.state()).gateways.every((g) => g.state === "up");
    } catch {
      return false;
    }
  }

  async stop(): Promise<void> {
    running.delete(this);
    for (const p of [...this.#beside, this.#process]) {
      if (!p || p.exitCode !== null || p.signalCode !== null) continue;
      const over = once(p, "exit");
      p.kill("SIGTERM");
      const hard = setTimeout(() => p.kill("SIGKILL"), 20_000);
      await over;
      clearTimeout(hard);
    }
    const data = join(this.#dir, "dev/pg"); // for root it lies elsewhere, behind a link
    if (lstatSync(data, { throwIfNoEntry: false })?.isSymbolicLink()) rmSync(realpathSync(data), { recursive: true, force: true });
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** Makes a key with these scopes alone. */
  async key(name: string, ...scopes: string[]): Promise<string> {
    const { stdout } = await run(this.#program, ["key", "create", name, "--scopes", scopes.join(","), "--database-url", this.#database()]);
    return stdout.trim();
  }

  /** Starts one more `tidings serve` on the same database, until stop, and returns its address. */
  async serve(...args: string[]): Promise<string> {
    const port = await freePort();
    const p = spawn(this.#program, ["serve", "--database-url", this.#database(), `--listen=127.0.0.1:${port}`, ...args], { stdio: "ignore" });
    this.#beside.push(p);
    const url = `http://127.0.0.1:${port}`;
    await eventually("the process beside serves", () => fetch(`${url}/readyz`).then((a) => a.ok, () => false));
    return url;
  }

  #database(): string {
    const database = /postgres:\/\/\S+/.exec(this.#said)?.[0];
    if (!database) throw new Error(`tidings dev does not say where its database is: ${this.#said}`);
    return database;
  }

  /** What it says of itself. */
  async state(): Promise<DevState> {
    const answer = await fetch(`${this.url}/dev/state`);
    if (!answer.ok) throw new Error(`GET /dev/state: ${answer.status}`);
    return (await answer.json()) as DevState;
  }

  /** Asks a path below /dev/ for something, and returns the answer. */
  async post<T = unknown>(path: string, body: object): Promise<T> {
    const answer = await fetch(`${this.url}/dev/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`POST /dev/${path}: ${answer.status} ${text}`);
    return JSON.parse(text || "{}") as T;
  }

  /** Asks the API with the key that has every scope. */
  async api<T = unknown>(method: string, path: string, body?: object): Promise<T> {
    const { key } = await this.state();
    const headers = { Authorization: `Bearer ${key}`, ...(body ? { "Content-Type": "application/json" } : {}) };
    const answer = await fetch(`${this.url}/v1/${path}`, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} /v1/${path}: ${answer.status} ${text}`);
    return JSON.parse(text || "{}") as T;
  }
}
