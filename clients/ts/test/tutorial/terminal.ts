// A terminal: commands one after the other in one shell's environment, and a program that is left running until Ctrl-C.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

/** How long a command may take: the first one compiles. */
const COMMAND_MS = 300_000;
/** How long a program may take to end. */
const END_MS = 40_000;

export class Terminal {
  readonly #dir: string;
  readonly #env: string; // a file with what was exported
  #program: ChildProcess | undefined;
  /** What the last block has printed so far. */
  output = "";

  constructor(dir: string, env: string) {
    this.#dir = dir;
    this.#env = env;
  }

  get running(): boolean {
    return this.#program !== undefined && this.#program.exitCode === null && this.#program.signalCode === null;
  }

  /** Starts commands. They have a group of their own, as in a terminal, so that Ctrl-C reaches all of them. */
  start(commands: string): ChildProcess {
    if (this.running) throw new Error("the terminal is busy: the page does not say to stop what runs there");
    const before = existsSync(this.#env) ? `. '${this.#env}'` : ":";
    const p = spawn("bash", ["-ec", `${before}\n${commands}\nexport -p > '${this.#env}'`], { cwd: this.#dir, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.output = "";
    for (const stream of [p.stdout, p.stderr]) stream.on("data", (part: Buffer) => (this.output += part.toString()));
    this.#program = p;
    return p;
  }

  /** Runs commands to their end and tells whether all of them succeeded. */
  async run(commands: string): Promise<boolean> {
    const p = this.start(commands);
    const timer = setTimeout(() => this.#signal("SIGKILL"), COMMAND_MS);
    await once(p, "close");
    clearTimeout(timer);
    return p.exitCode === 0;
  }

  /** Ctrl-C. */
  async interrupt(): Promise<void> {
    if (!this.running || !this.#program) throw new Error("there is nothing to interrupt in the terminal");
    const over = once(this.#program, "close").then(() => true);
    this.#signal("SIGINT");
    const given = new AbortController();
    const ended = await Promise.race([over, pause(END_MS, false, { signal: given.signal })]);
    given.abort();
    if (ended) return;
    this.#signal("SIGKILL");
    await over;
    throw new Error(`Ctrl-C did not end the program within ${END_MS} ms: ${this.output.slice(-2000)}`);
  }

  #signal(name: NodeJS.Signals): void {
    if (this.#program?.pid) process.kill(-this.#program.pid, name);
  }
}
