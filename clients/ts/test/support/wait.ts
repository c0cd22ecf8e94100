// Waiting for what will be true.

/** How long a test waits for something that has to happen. */
export const PATIENCE_MS = 20_000;

/** Waits until look finds something, and returns it. */
export async function eventually<T>(what: string, look: () => T | undefined | null | false | Promise<T | undefined | null | false>, detail: () => unknown = () => "", patienceMs = PATIENCE_MS): Promise<T> {
  for (const deadline = Date.now() + patienceMs; ;) {
    const found = await look();
    if (found !== undefined && found !== null && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`not within ${patienceMs} ms: ${what} ${JSON.stringify(detail())}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
