// Connects again and again.

import type { Socket } from "./config.js";
import type { Core } from "./core.js";
import { ClosedError } from "./errors.js";
import { CLOSE, connect, reconnects, type Session } from "./session.js";
import { now } from "./signal.js";

/** A connection that lived so long begins the pauses anew. */
const STABLE_MS = 10_000;

/** Connects again and again until the client is closed. open makes the socket of a session. */
export async function run(core: Core, open: (s: Session) => Socket): Promise<void> {
  let refused = false; // the token of the last connection
  let ghosts: number[] = []; // connections that were lost after their hello
  for (let tries = 0; !core.closed;) {
    const { relayed } = core;
    const end = await connect(core, open);
    if (core.closed) break;
    if (relayed) { // the tab with the connection waits as it has to, and tells
      if (!core.relayed && core.state.state === "stopped") await core.again.wait(); // it was that tab, and has stopped before it was gone
      continue;
    }
    if (end.lived > 0) refused = false;
    if (end.lived > STABLE_MS) tries = 0;
    if (end.ghost) ghosts.push(now());
    ghosts = ghosts.filter((at) => now() - at <= core.cfg.requestTimeoutMs);
    let { code } = end;
    if (code === CLOSE.replaced && ghosts.length > 0) {
      // The newer connection of this device may be an older one of ours: its hello was taken after that of this one.
      ghosts.shift();
      code = CLOSE.lostLease;
    }
    const again = code === CLOSE.token && !refused; // the source may have a better one
    refused = code === CLOSE.token;
    if (again) continue;
    const why = { ...(end.error ? { error: end.error } : {}), ...(code ? { code } : {}) };
    if (end.fatal || (code !== 0 && !reconnects(code))) {
      core.setState({ state: "stopped", ...why });
      await core.again.wait();
      tries = 0;
      refused = false;
      continue;
    }
    const retryMs = end.hint || core.pause(tries++);
    core.setState({ state: "offline", retryMs, ...why });
    if (await core.again.wait(retryMs)) tries = 0;
  }
  core.setState({ state: "stopped", error: new ClosedError() });
}
