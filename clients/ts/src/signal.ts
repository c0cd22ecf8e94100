// Waiting: for a signal, for a time, for a value of later.

/** A promise that is fulfilled from outside. */
export class Deferred<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T | PromiseLike<T>) => void;
  reject!: (err: unknown) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.promise.catch(() => {}); // whether anybody waits is not known here
  }
}

/** Wakes one waiter. A signal that nobody waits for is kept for the next one. */
export class Signal {
  #set = false;
  #wake: (() => void) | undefined;

  set(): void {
    this.#set = true;
    this.#wake?.();
  }

  /** Waits for a signal, at most ms. Tells whether it came. */
  async wait(ms?: number): Promise<boolean> {
    if (!this.#set) {
      await new Promise<void>((resolve) => {
        const timer = ms === undefined ? undefined : setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    const was = this.#set;
    this.#set = false;
    return was;
  }
}

/** Waits, at most until the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, 2 ** 31 - 1));
    signal.addEventListener("abort", end);
  });
}

/** Milliseconds of a clock that is never set. */
export const now = (): number => performance.now();
