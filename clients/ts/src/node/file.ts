// The outbox of Node: an append-only file, its lines and compaction.

import { open, readFile, rename, rm, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import { ClosedError, invalid } from "../errors.js";
import { keyOf } from "../outbox.js";
import { MAX_SENT, randomId, type Change, type Sent, type Storage, type Stored, type StoredEntry } from "../storage.js";
import { lock } from "./lock.js";

/** The form that is written. */
const VERSION = 1;

/** How long the content of recalled messages stays in the file, so that it is rewritten once for a row of recalls. */
const SCRUB_MS = 100;
const SCRUB_AGAIN_MS = 30_000; // after a failure

/** The first line, and every other. */
type Line = { op: "tidings-client-outbox"; version: number; device: string; install: string } | Change;

/** An entry that waits, or was sent. */
interface Kept {
  entry: StoredEntry;
  sent?: Sent;
}

/**
 * The outbox in a file: lines of JSON that are only appended. The first one says whose it is; of each entry the last one counts. A crash can tear the last line, which
 * then counts as never written; a damaged line elsewhere is refused, because a message could be lost silently.
 */
export class FileStorage implements Storage {
  readonly #path: string;
  readonly #kept = new Map<string, Kept>(); // in the order of the lines
  #device = "";
  #install = "";
  #user = "";
  #unlock: (() => Promise<void>) | undefined;
  #file: FileHandle | undefined;
  #lines = 0; // since the last rewrite
  #failed: Error | undefined; // no line is taken any more
  #waiting: { text: string; flush: boolean; resolve: () => void; reject: (err: unknown) => void }[] = [];
  #writer: Promise<void> | undefined;
  #scrub: ReturnType<typeof setTimeout> | undefined;
  #stained = false; // the file has content of a message that was recalled

  constructor(path: string) {
    this.#path = path;
  }

  async open(device: string, install: string): Promise<Stored> {
    this.#device = device;
    this.#install = install;
    try {
      this.#unlock = await lock(this.#path);
      await this.#load();
      await this.#rewrite(); // without what was torn and what is over
    } catch (cause) {
      await this.#unlock?.();
      throw cause instanceof Error && cause.name === "INVALID_ARGUMENT" ? cause : new Error(`open the outbox ${this.#path}: ${String(cause)}`, { cause });
    }
    const stored: Stored = { install: this.#install, user: this.#user, waiting: [], sent: [] };
    for (const { entry, sent } of this.#kept.values()) {
      if (sent) stored.sent.push({ entry, sent });
      else stored.waiting.push(entry);
    }
    return stored;
  }

  write(change: Change): Promise<void> {
    if (this.#failed) return Promise.reject(this.#failed);
    this.#play(change);
    if (change.op === "erase") {
      this.#stained = true;
      this.#scrubIn(SCRUB_MS);
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text: line(change), flush: change.op === "queue", resolve, reject });
      this.#work();
    });
  }

  #scrubIn(ms: number): void {
    this.#scrub ??= setTimeout(() => {
      this.#scrub = undefined;
      this.#work();
    }, ms).unref();
  }

  async close(): Promise<void> {
    clearTimeout(this.#scrub);
    this.#scrub = undefined;
    if (this.#stained) this.#work();
    while (this.#writer) await this.#writer;
    this.#failed ??= new ClosedError();
    await this.#file?.close();
    await this.#unlock?.();
  }

  /** Plays the lines of the file. */
  async #load(): Promise<void> {
    let text: string;
    try {
      text = await readFile(this.#path, "utf8");
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== "ENOENT") throw err;
      this.#install ||= randomId();
      return;
    }
    const lines = text.split("\n");
    lines.pop(); // torn, or nothing
    if (lines.length === 0) throw new Error("the file is no outbox");
    lines.forEach((text, i) => {
      let read: Line;
      try {
        read = JSON.parse(text) as Line;
      } catch (cause) {
        throw new Error(`line ${i + 1} is damaged`, { cause });
      }
      if (i === 0) this.#owned(read);
      else this.#play(read as Change);
    });
  }

  /** Judges the first line. */
  #owned(first: Line): void {
    if (first.op !== "tidings-client-outbox") throw new Error("the file is no outbox");
    const { version, device, install } = first;
    if (version !== VERSION) throw new Error(`it has the version ${version}, which is not known here`);
    if (device !== this.#device) throw invalid(`the outbox ${this.#path} belongs to the device ${device}, not to ${this.#device}`);
    if (this.#install && install !== this.#install) throw invalid(`the outbox ${this.#path} belongs to the installation ${install}, not to ${this.#install}`);
    this.#install = install;
  }

  /** Follows a change in what the file comes to. */
  #play(change: Change): void {
    switch (change.op) {
      case "user":
        this.#user = change.user;
        return;
      case "queue":
        return this.#put(change.entry, { entry: change.entry });
      case "sent":
        return this.#put(change.entry, { entry: change.entry, sent: change.sent });
      case "end":
      case "erase":
        this.#kept.delete(keyOf(change.conv, change.cmid));
    }
  }

  #put(entry: StoredEntry, kept: Kept): void {
    const key = keyOf(entry.conv, entry.cmid);
    this.#kept.delete(key); // so that it is the newest
    this.#kept.set(key, kept);
  }

  /** Lets the one writer write what waits. */
  #work(): void {
    this.#writer ??= this.#write().finally(() => {
      this.#writer = undefined;
      if (this.#waiting.length > 0) this.#work();
    });
  }

  /** Writes everything that waits, with one flush for all. */
  async #write(): Promise<void> {
    await Promise.resolve(); // what is written in the same turn goes with it
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0);
      try {
        if (this.#failed) throw this.#failed;
        await this.#file?.appendFile(batch.map((w) => w.text).join(""));
        if (batch.some((w) => w.flush)) await this.#file?.datasync();
        this.#lines += batch.length;
        for (const w of batch) w.resolve();
      } catch (err) {
        // It may have a torn line, behind which nothing may stand; and a second flush would say nothing about the first.
        this.#failed ??= new Error(`the file has failed before: ${String(err)}`, { cause: err });
        for (const w of batch) w.reject(err);
      }
    }
    const crowded = this.#lines > 2 * this.#kept.size + 1000;
    if (this.#failed || !(crowded || (this.#stained && !this.#scrub))) return;
    try {
      await this.#rewrite();
    } catch { // a full disk, say: it goes on as it is
      if (this.#stained) this.#scrubIn(SCRUB_AGAIN_MS);
    }
  }

  /** Makes a new file of what lives and puts it in place of the old one, which stays as it is when something fails. */
  async #rewrite(): Promise<void> {
    const sent = [...this.#kept].filter(([, kept]) => kept.sent);
    for (const [key] of sent.slice(0, Math.max(0, sent.length - MAX_SENT))) this.#kept.delete(key);
    const lines: Line[] = [{ op: "tidings-client-outbox", version: VERSION, device: this.#device, install: this.#install }];
    if (this.#user) lines.push({ op: "user", user: this.#user });
    for (const { entry, sent } of this.#kept.values()) lines.push(sent ? { op: "sent", entry, sent } : { op: "queue", entry });
    const path = `${this.#path}.new-${process.pid}`;
    const clean = this.#stained;
    this.#stained = false; // by what comes meanwhile it is stained anew
    const file = await open(path, "w", 0o600);
    try {
      await file.writeFile(lines.map(line).join(""));
      await file.sync();
      await rename(path, this.#path);
    } catch (err) {
      this.#stained ||= clean;
      await file.close();
      await rm(path, { force: true });
      throw err;
    }
    await this.#file?.close();
    this.#file = file; // what is written follows what stands there
    this.#lines = 0;
    await syncDirectory(dirname(this.#path)).catch((cause: unknown) => {
      this.#failed = new Error(`which of two files is there after a crash is not known: ${String(cause)}`, { cause });
      throw this.#failed;
    });
  }
}

function line(l: Line): string {
  return `${JSON.stringify(l)}\n`;
}

/** Makes a rename last. */
async function syncDirectory(path: string): Promise<void> {
  if (process.platform === "win32") return; // it has no such thing
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
