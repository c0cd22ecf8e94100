// The outbox of browsers.

import { invalid } from "./errors.js";
import { keyOf } from "./outbox.js";
import { MAX_SENT, randomId, type Change, type Sent, type Storage, type Stored, type StoredEntry } from "./storage.js";

/** A record of a message that waits or was sent; its key is [conv, cmid], and the order is that of the records' making. */
interface Kept {
  conv: string;
  cmid: string;
  order: number;
  entry: StoredEntry;
  sent?: Sent;
}

/** Whose outbox it is: the only record of its store. */
interface Owner {
  device: string;
  install: string;
  user: string;
}

const ENTRIES = "entries";
const OWNER = "owner";

/** The outbox in a database of IndexedDB. Who opens it has to hold a lock: the database takes everybody of its origin. */
export class IndexedDBStorage implements Storage {
  readonly #name: string;
  #db: IDBDatabase | undefined;
  #owner: Owner = { device: "", install: "", user: "" };
  #order = 0;
  readonly #sent = new Map<string, [string, string]>(); // keys of what was sent, oldest first
  #last: Promise<unknown> = Promise.resolve();

  constructor(name: string) {
    this.#name = name;
  }

  async open(device: string, install: string): Promise<Stored> {
    const db = await new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore(ENTRIES, { keyPath: ["conv", "cmid"] });
        request.result.createObjectStore(OWNER);
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
    db.onversionchange = () => db.close(); // somebody deletes it, or has a later release: what comes after this is refused
    this.#db = db;
    const t = db.transaction([ENTRIES, OWNER], "readonly");
    const [owner, kept] = await Promise.all([
      result<Owner | undefined>(t.objectStore(OWNER).get(OWNER)),
      result<Kept[]>(t.objectStore(ENTRIES).getAll()),
    ]);
    try {
      this.#owner = owned(owner, device, install, this.#name);
    } catch (err) {
      db.close();
      throw err;
    }
    if (!owner) await this.#transact("strict", [OWNER], (stores) => stores.objectStore(OWNER).put(this.#owner, OWNER));
    kept.sort((a, b) => a.order - b.order);
    this.#order = kept.at(-1)?.order ?? 0;
    const stored: Stored = { install: this.#owner.install, user: this.#owner.user, waiting: [], sent: [] };
    for (const { conv, cmid, entry, sent } of kept) {
      if (!sent) {
        stored.waiting.push(entry);
        continue;
      }
      stored.sent.push({ entry, sent });
      this.#sent.set(keyOf(conv, cmid), [conv, cmid]);
    }
    return stored;
  }

  write(change: Change): Promise<void> {
    const done = this.#apply(change);
    const before = this.#last;
    this.#last = done.catch(() => {});
    return before.then(() => done); // also when two of different durability overtake each other
  }

  async close(): Promise<void> {
    await this.#last;
    this.#db?.close();
  }

  #apply(change: Change): Promise<void> {
    switch (change.op) {
      case "user":
        this.#owner.user = change.user;
        return this.#transact("relaxed", [OWNER], (t) => t.objectStore(OWNER).put(this.#owner, OWNER));
      case "queue":
      case "sent": {
        const { entry } = change;
        const { conv, cmid } = entry;
        const kept: Kept = { conv, cmid, order: ++this.#order, entry, ...(change.op === "sent" ? { sent: change.sent } : {}) };
        const old = change.op === "sent" ? this.#remember(conv, cmid) : undefined;
        return this.#transact(change.op === "queue" ? "strict" : "relaxed", [ENTRIES], (t) => {
          t.objectStore(ENTRIES).put(kept);
          if (old) t.objectStore(ENTRIES).delete(old);
        });
      }
      case "end":
      case "erase":
        this.#sent.delete(keyOf(change.conv, change.cmid));
        return this.#transact("relaxed", [ENTRIES], (t) => t.objectStore(ENTRIES).delete([change.conv, change.cmid]));
    }
  }

  /** Notes the newest sent message, and returns the key of the one that is remembered no longer. */
  #remember(conv: string, cmid: string): [string, string] | undefined {
    this.#sent.delete(keyOf(conv, cmid));
    this.#sent.set(keyOf(conv, cmid), [conv, cmid]);
    const [first] = this.#sent;
    if (this.#sent.size <= MAX_SENT || !first) return undefined;
    this.#sent.delete(first[0]);
    return first[1];
  }

  #transact(durability: "strict" | "relaxed", stores: string[], act: (t: IDBTransaction) => unknown): Promise<void> {
    return new Promise((resolve, reject) => {
      if (!this.#db) throw new Error("the outbox is not open");
      const t = this.#db.transaction(stores, "readwrite", { durability });
      t.oncomplete = () => resolve();
      t.onabort = () => reject(t.error ?? new Error("the outbox takes nothing more"));
      act(t);
    });
  }
}

/** Judges whose the database is. */
function owned(had: Owner | undefined, device: string, install: string, name: string): Owner {
  if (!had) return { device, install: install || randomId(), user: "" };
  if (had.device !== device) throw invalid(`the outbox ${name} belongs to the device ${had.device}, not to ${device}`);
  if (install && had.install !== install) throw invalid(`the outbox ${name} belongs to the installation ${had.install}, not to ${install}`);
  return had;
}

function result<T>(request: IDBRequest): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result as T);
    request.onerror = () => reject(request.error);
  });
}
