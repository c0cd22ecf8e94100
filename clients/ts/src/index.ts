/**
 * A client of Tidings conversations: it sends, keeps complete copies of the logs that it follows, and survives what networks and servers do.
 * docs/client-typescript.md describes it, docs/protocol.md the protocol.
 *
 * @packageDocumentation
 */
export { Client, type Message, type Outcome, type Pending, type Recall, type Summary } from "./client.js";
export type { Config, Socket, Token } from "./config.js";
export { ClosedError, codeOf, DiscardedError, TidingsError, type Code, type Details } from "./errors.js";
export type { Position } from "./log.js";
export type { Entry, WaitingEntry } from "./outbox.js";
export type { Change, Sent, Storage, Stored, StoredEntry, StoredSent } from "./storage.js";
export type { Arrived, Asked, Connection, Dropped, Ended, Lost, ReadMoved, Recalled, Update, WithheldRange } from "./update.js";
export type { Event } from "./wire.js";
