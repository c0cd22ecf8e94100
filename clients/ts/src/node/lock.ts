// A lock that no other process has, and that ends with the process.

import { createHash } from "node:crypto";
import { realpathSync, rmSync } from "node:fs";
import { createConnection, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";

/**
 * Takes the lock of a file; the function that it returns gives it back. It is a local socket that listens under a name made of the file's path: the system takes it
 * back with the process. Node has no flock.
 */
export async function lock(path: string, platform: NodeJS.Platform = process.platform): Promise<() => Promise<void>> {
  const real = join(realpathSync(dirname(path)), basename(path));
  const name = `tidings-outbox-${createHash("sha256").update(real).digest("hex").slice(0, 32)}`;
  const server = createServer((socket) => socket.end(String(process.pid)));
  server.unref();
  if (platform === "win32") await listen(server, `\\\\.\\pipe\\${name}`);
  else if (platform === "linux") await listen(server, `\0${name}`); // an abstract name: there is no file
  else await listenOnFile(server, join(tmpdir(), name));
  return () => new Promise((resolve) => server.close(() => resolve()));
}

/** A socket of the file system stays behind when its process is killed. One that nobody answers at is taken away. */
async function listenOnFile(server: Server, path: string): Promise<void> {
  try {
    return await listen(server, path);
  } catch (err) {
    if (await answers(path)) throw err;
  }
  rmSync(path, { force: true });
  await listen(server, path);
  await new Promise((resolve) => setTimeout(resolve, 50)); // for another process that found the same
  if ((await answers(path)) === String(process.pid)) return;
  server.close();
  throw inUse();
}

function listen(server: Server, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const refused = (err: NodeJS.ErrnoException): void => reject(err.code === "EADDRINUSE" || err.code === "EACCES" ? inUse() : err);
    server.once("error", refused);
    server.listen(name, () => {
      server.off("error", refused);
      resolve();
    });
  });
}

/** What the process behind a socket says; "" when there is none. */
function answers(path: string): Promise<string> {
  return new Promise((resolve) => {
    let said = "";
    const socket = createConnection(path);
    socket.on("data", (part: Buffer) => (said += part.toString()));
    socket.on("error", () => resolve(""));
    socket.on("end", () => resolve(said));
  });
}

function inUse(): Error {
  return new Error("another process uses it");
}
