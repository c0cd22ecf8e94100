// The answers to sends: what ends a message, what keeps it.

import type { Conversation } from "./conversation.js";
import type { Core } from "./core.js";
import { codeOf, TidingsError } from "./errors.js";
import type { Item, Result } from "./outbox.js";
import { empty } from "./recalls.js";
import { refusal, type Frame } from "./wire.js";

/** The refusals that end a message in the outbox; nothing else does. */
const FINAL: ReadonlySet<string> = new Set(["ORIGINAL_EXPIRED", "IDEMPOTENCY_MISMATCH", "INVALID_ARGUMENT", "TOO_LARGE", "NOT_MEMBER"]);

export function sendAnswered(core: Core, v: Conversation, item: Item, f: Frame): void {
  v.land(item);
  core.look(v);
  if (!core.box.waits(item)) return; // discarded meanwhile
  const err = refusal(f);
  if (!err) {
    v.sendTries = 0;
    return finish(core, v, item, { sent: { seq: f.seq, mid: f.mid, epoch: f.epoch, at: f.at, dup: f.dup } });
  }
  if (f.stored === "unknown") item.doubted = true;
  if (f.code === "ORIGINAL_EXPIRED") finish(core, v, item, { error: err });
  else if (FINAL.has(f.code) || f.retry === "no") refuse(core, v, item, err, item.doubted && f.stored === "unchanged");
  else holdBack(core, v, f); // also what only a new token or a sync would mend: the message itself is not refused
}

/** Lets everything of a conversation wait, as the server says. */
export function holdBack(core: Core, v: Conversation, f: Frame): void {
  v.hold = true;
  v.sendAt = core.retryAt(f, v.sendTries);
  v.sendTries++;
}

/** Ends an entry, or lets the application decide; when an earlier transmission may have stored it, outcome is asked first. */
export function refuse(core: Core, v: Conversation, item: Item, err: TidingsError, ask: boolean): void {
  if (ask) item.verdict = err;
  else if (FINAL.has(codeOf(err))) finish(core, v, item, { error: err });
  else askApplication(core, item, err);
}

/** Takes what became of a message: of one that waits, or of one that was sent in another history. */
export function outcomeAnswered(core: Core, v: Conversation, item: Item, f: Frame): void {
  v.land(item);
  core.look(v);
  const waits = core.box.waits(item);
  if (!waits && !core.box.remembers(item)) return; // discarded meanwhile
  const answer = f.t === "outcome" ? f.stored : f.code === "NOT_MEMBER" ? "no" : "";
  if (answer === "yes" && waits) {
    finish(core, v, item, { sent: { seq: f.seq, mid: "", epoch: f.epoch, at: 0, dup: true } });
  } else if (answer === "purged" && waits) {
    finish(core, v, item, { error: new TidingsError("ORIGINAL_EXPIRED", "The message under this key was stored and has been purged since.", { seq: f.seq }) });
  } else if (answer === "yes") {
    stands(core, item, f.seq, f.epoch);
  } else if (answer === "purged") {
    empty(core, item);
  } else if (answer === "no" && waits) {
    const { verdict } = item;
    item.verdict = undefined;
    item.doubted = false;
    if (verdict) refuse(core, v, item, verdict, false);
  } else if (answer === "no") {
    core.box.unkeep(item);
    core.note({ op: "end", conv: item.conv, cmid: item.cmid });
    if (item.result?.sent) core.tell({ type: "lost", entry: item.toEntry(), sent: item.result.sent });
  } else {
    v.sendAt = core.retryAt(f, v.sendTries);
    v.sendTries++;
    if (!waits) v.suspects.push(item);
  }
}

/** The final answer to an entry. */
export function finish(core: Core, v: Conversation, item: Item, result: Result): void {
  const { sent } = result;
  v.dequeue(item);
  core.settle(item, result);
  if (item.target || !sent) {
    core.box.forget(item);
    core.note({ op: "end", conv: item.conv, cmid: item.cmid });
  } else if (sent.epoch === v.log.epoch && v.log.recalled(sent.seq)) {
    empty(core, item);
  } else {
    core.box.keep(item);
    core.note({ op: "sent", entry: item.toStored(), sent });
    expectSent(core, v, item, sent.epoch, sent.seq);
  }
  if (core.cfg.handle) core.box.untold++;
  core.tell({ type: "ended", entry: item.toEntry(), ...result });
}

/** Looks whether the answer comes from the history that is known here. */
function expectSent(core: Core, v: Conversation, item: Item, epoch: number, seq: number): void {
  if (v.follow && v.log.epoch !== 0 && epoch !== v.log.epoch) v.addSuspects([item]);
  core.expect(v, epoch, seq);
}

/** Notes where a message is in the present history. */
export function stands(core: Core, item: Item, seq: number, epoch: number): void {
  const had = item.result?.sent;
  if (!had) return;
  const sent = { ...had, seq, epoch };
  item.result = { sent };
  core.note({ op: "sent", entry: item.toStored(), sent });
}

/** Leaves an entry to the application. */
export function askApplication(core: Core, item: Item, err?: TidingsError): void {
  item.asked = { why: err };
  core.tell({ type: "asked", entry: item.toEntry(), ...(err ? { error: err } : {}) });
}
