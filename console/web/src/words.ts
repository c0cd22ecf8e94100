// What the page says of states.

import type { WaitingEntry } from "../../../clients/ts/src/index.js";
import type { Device, Piece } from "./device.js";

/** A device as people say it: the id is user-kind. */
export function nameOf(device: string): string {
  return device.split("-").at(-1) ?? device;
}

/** The time of day, of milliseconds since 1970. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

/** How the connection of a device is. now: milliseconds since 1970. */
export function connectionText(d: Device, now: number): string {
  const { state, code, error } = d.connection;
  const seconds = (at: number): string => `${Math.max(0, Math.ceil((at - now) / 1000))} s`;
  switch (state) {
    case "online":
      if (d.drainAt > 0) return `online; its gateway stops, it moves in ${seconds(d.drainAt)}`;
      return d.watch.here ? "online" : "online, through another tab of this browser";
    case "offline":
      if (!error) return "connecting";
      return d.retryAt > now ? `offline; tries again in ${seconds(d.retryAt)}` : "offline; trying";
    case "stopped":
      return code === 4404 || code === 4410 ? "stopped: this device is open in another browser" : `stopped: ${error?.message ?? "closed"}`;
  }
}

/** What is known of an entry of the outbox. */
export function entryText(d: Device, e: WaitingEntry): string {
  const asked = d.asked.get(e.cmid);
  if (asked !== undefined) return `your decision: ${asked}`;
  if (d.connection.state !== "online") return e.inDoubt ? "unknown whether it is stored: it is sent again under the same cmid" : "waits for the network; nothing of it is stored";
  return e.inDoubt ? "sent again under the same cmid, no answer yet" : "on its way, no answer yet";
}

/** What a piece of the log says. */
export function pieceText(p: Piece, name: (user: string) => string): string {
  const e = p.event;
  if (!e) return p.why === "trimmed" ? "older than what is kept" : p.why === "not_member" ? "hidden: not a member at that time" : (p.why ?? "");
  switch (e.kind) {
    case "msg":
      return e.recalled ? "recalled" : (e.body ?? "");
    case "recall":
      return `${name(e.sender)} took #${e.target} back${e.actor ? `, by ${e.actor}` : ""}`;
    case "join":
      return `${name(e.sender)} joined`;
    case "leave":
      return `${name(e.sender)} left`;
    default:
      return `${e.kind}: of a kind that this page does not know`;
  }
}
