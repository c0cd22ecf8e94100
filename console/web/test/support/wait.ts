// Waiting for what will be true.

/** How long a test waits for something that has to happen. A restore, or a gateway that comes back, takes seconds. */
export const PATIENCE_MS = 40_000;

/** Waits until look finds something, and returns it. */
export async function eventually<T>(what: string, look: () => T | undefined | null | false | Promise<T | undefined | null | false>, detail: () => unknown = () => ""): Promise<T> {
  for (const deadline = Date.now() + PATIENCE_MS; ;) {
    const found = await look();
    if (found !== undefined && found !== null && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS} ms: ${what} ${JSON.stringify(await detail())}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
