// Codes, and the error that carries one.

/** Why something was refused, as in the protocol. A later server may name others: judge those by what they did, not by a list. */
export type Code =
  | "INVALID_ARGUMENT" | "UNAUTHENTICATED" | "FORBIDDEN" | "NOT_MEMBER" | "NOT_SENDER" | "NOT_FOUND" | "ALREADY_RECALLED"
  | "RECALL_WINDOW_EXPIRED" | "CONFLICT" | "IDEMPOTENCY_MISMATCH" | "ORIGINAL_EXPIRED" | "CURSOR_AHEAD" | "EPOCH_CHANGED"
  | "INSTALL_REPLACED" | "TOO_LARGE" | "RATE_LIMITED" | "OUTCOME_UNKNOWN" | "UNAVAILABLE" | "INTERNAL"
  | (string & {});

/** What some codes come with. */
export interface Details {
  /** Milliseconds to wait before a repeat; 0 or absent: nothing is known. */
  retryAfterMs?: number;
  /** The current epoch, of EPOCH_CHANGED and CURSOR_AHEAD. */
  epoch?: number;
  /** The end of the log, of CURSOR_AHEAD. */
  head?: number;
  /** Where the message stood, of ORIGINAL_EXPIRED. */
  seq?: number;
  cause?: unknown;
}

/** A refusal: of the server, or of the client itself before anything was sent. Its name is the code. */
export class TidingsError extends Error {
  readonly code: Code;
  readonly retryAfterMs: number;
  readonly epoch: number;
  readonly head: number;
  readonly seq: number;

  constructor(code: Code, message: string, details: Details = {}) {
    super(message, "cause" in details ? { cause: details.cause } : undefined);
    this.name = code || "TidingsError";
    this.code = code;
    this.retryAfterMs = details.retryAfterMs ?? 0;
    this.epoch = details.epoch ?? 0;
    this.head = details.head ?? 0;
    this.seq = details.seq ?? 0;
  }
}

/** The answer of a client that was closed. */
export class ClosedError extends Error {
  override readonly name = "ClosedError";
  constructor() {
    super("the client is closed");
  }
}

/** What {@link Pending.wait} rejects with when the application has discarded the entry. */
export class DiscardedError extends Error {
  override readonly name = "DiscardedError";
  constructor() {
    super("the application has discarded it");
  }
}

/** The code of an error: the one it carries, INTERNAL for any other, and "" for none. */
export function codeOf(err: unknown): Code {
  if (err === undefined || err === null) return "";
  return err instanceof TidingsError ? err.code : "INTERNAL";
}

export function invalid(message: string): TidingsError {
  return new TidingsError("INVALID_ARGUMENT", message);
}
