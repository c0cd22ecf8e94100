// A bad network: it passes connections on, cuts them, keeps answers back, lets nobody through.

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export class Proxy {
  readonly #server;
  readonly #pairs = new Set<{ near: Socket; far: Socket }>();
  /** Connections of WebSockets that were made so far. */
  upgrades = 0;
  /** Nobody gets through. */
  down = false;
  /** What the server says does not arrive. */
  mute = false;

  private constructor(port: number) {
    this.#server = createServer((near) => {
      if (this.down) return void near.destroy();
      const far = connect(port, "127.0.0.1");
      const pair = { near, far };
      this.#pairs.add(pair);
      near.on("data", (part) => {
        if (part.includes("Upgrade: websocket") || part.includes("upgrade: websocket")) this.upgrades++;
        far.write(part);
      });
      far.on("data", (part) => this.mute || near.write(part));
      for (const [one, other] of [[near, far], [far, near]] as const) {
        one.on("error", () => {});
        one.on("close", () => {
          other.destroy();
          this.#pairs.delete(pair);
        });
      }
    });
  }

  static async to(url: string): Promise<Proxy> {
    const p = new Proxy(Number(new URL(url).port));
    p.#server.listen(0, "127.0.0.1");
    await once(p.#server, "listening");
    return p;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Cuts all connections and returns how many. */
  cut(): number {
    const list = [...this.#pairs];
    for (const { near, far } of list) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
    return list.length;
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
