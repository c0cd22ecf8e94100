// Recalls: the answers to our own, and what any recall takes from the outbox.

import type { Conversation } from "./conversation.js";
import type { Core } from "./core.js";
import { TidingsError } from "./errors.js";
import type { Position } from "./log.js";
import type { Item } from "./outbox.js";
import { askApplication, finish, holdBack } from "./sends.js";
import { refusal, type Event, type Frame } from "./wire.js";

/** The refusals that end a recall in the outbox; nothing else does. */
const FINAL: ReadonlySet<string> = new Set([
  "NOT_SENDER", "NOT_FOUND", "ALREADY_RECALLED", "RECALL_WINDOW_EXPIRED", "IDEMPOTENCY_MISMATCH", "INVALID_ARGUMENT", "NOT_MEMBER", "EPOCH_CHANGED",
]);

export function recallAnswered(core: Core, v: Conversation, item: Item, f: Frame): void {
  v.land(item);
  core.look(v);
  if (!core.box.waits(item) || !item.target) return; // discarded meanwhile, or its history has ended
  let err = refusal(f);
  // NOT_FOUND after an earlier transmission: it was done, and both were purged since; whichever way, the message is gone.
  if (f.code === "NOT_FOUND" && item.doubted) err = undefined;
  if (f.stored === "unknown") item.doubted = true;
  if (!err) {
    v.sendTries = 0;
    finish(core, v, item, { sent: { seq: f.seq, mid: "", epoch: f.epoch, at: 0, dup: f.dup || f.code !== "" } });
    emptyAt(core, item.conv, item.target);
    if (f.seq > 0) core.expect(v, f.epoch, f.seq);
  } else if (FINAL.has(f.code)) {
    finish(core, v, item, { error: err });
    if (f.code === "ALREADY_RECALLED") emptyAt(core, item.conv, item.target);
    if (f.code === "EPOCH_CHANGED") core.expect(v, f.epoch, 0);
  } else if (f.retry === "no") {
    askApplication(core, item, err);
  } else {
    holdBack(core, v, f);
  }
}

/**
 * Ends what was to be recalled in the history that is known, before the one with the epoch current takes its place: the seq may name another event there.
 */
export function endRecalls(core: Core, v: Conversation, current: number): void {
  for (const item of [...v.queue]) {
    if (!item.target || (item.target.epoch === current && current !== v.log.epoch)) continue;
    finish(core, v, item, { error: new TidingsError("EPOCH_CHANGED", "The conversation's log has another history.", { epoch: current }) });
  }
}

/**
 * Looks whether an event, which was merged if it could be, takes the content of a message of this device. Then the outbox forgets the message, whoever has
 * recalled it.
 */
export function takeBack(core: Core, v: Conversation, epoch: number, event: Event): void {
  const recall = event.kind === "recall";
  if (!recall && !event.recalled) return;
  const seq = recall ? (event.target ?? 0) : event.seq;
  emptyAt(core, v.conv, { epoch, seq });
  if (epoch !== v.log.epoch) return;
  const gone = recall ? v.log.at(seq) : event;
  if (!gone?.cmid || gone.sender !== core.user) return;
  const key = `${v.conv} ${gone.cmid}`;
  const own = core.box.waiting.get(key);
  if (own && !own.target) { // it is stored, though no answer has said so
    own.body = "";
    own.data = undefined;
    finish(core, v, own, { sent: { seq: gone.seq, mid: gone.mid ?? "", epoch, at: gone.at, dup: true } });
  }
  const sent = core.box.sent.get(key); // perhaps in another history
  if (sent) empty(core, sent);
}

/** Forgets the message of this device that was sent to a place, because it was recalled. */
function emptyAt(core: Core, conv: string, at: Position): void {
  for (const item of core.box.sent.values()) {
    const sent = item.result?.sent;
    if (item.conv === conv && sent?.epoch === at.epoch && sent.seq === at.seq) return empty(core, item);
  }
}

/** Forgets the messages that were sent to places before minSeq: they are purged, and so may be what has recalled them. */
export function trimmed(core: Core, conv: string, epoch: number, minSeq: number): void {
  for (const item of core.box.sent.values()) {
    const sent = item.result?.sent;
    if (item.conv === conv && sent?.epoch === epoch && sent.seq < minSeq) empty(core, item);
  }
}

/** Forgets a message that was sent, with its body. */
export function empty(core: Core, item: Item): void {
  core.box.forget(item);
  core.box.unkeep(item);
  item.body = "";
  item.data = undefined;
  core.news.empty(item.conv, item.cmid);
  core.note({ op: "erase", conv: item.conv, cmid: item.cmid });
}
