// What the server would refuse is refused before it is queued. The rules are those of the database.

import { invalid, TidingsError } from "./errors.js";

export const MAX_BODY = 16 << 10; // bytes
const MAX_DATA = 8 << 10; // bytes of JSON
const MAX_ID = 128;
const MAX_NESTING = 32;
const MAX_EXPONENTS = 4096; // their sum in data: each is that many digits where it is stored

const utf8 = new TextEncoder();

/** The bytes of a text in UTF-8. */
export function bytes(text: string): number {
  return utf8.encode(text).length;
}

/** Refuses what is no id: 1 to 128 bytes of printable ASCII without space, "/", "?", "#" and "%". */
export function checkId(what: string, id: string): void {
  if (typeof id !== "string" || id === "") throw invalid(`${what} is empty`);
  if (id.length > MAX_ID) throw invalid(`${what} is ${id.length} characters long, at most ${MAX_ID} are allowed`);
  if (!/^[!-~]+$/.test(id) || /[/?#%]/.test(id)) throw invalid(`${what} has a character that an id cannot have`);
}

/** Refuses a text that is too long, or that the database cannot store. */
export function checkText(what: string, text: string, limit: number): void {
  if (typeof text !== "string") throw invalid(`${what} is no text`);
  const size = bytes(text);
  if (size > limit) throw new TidingsError("TOO_LARGE", `${what} is ${size} bytes long, at most ${limit} are allowed`);
  if (text.includes("\0")) throw invalid(`${what} contains U+0000`);
  if (/[\uD800-\uDFFF]/u.test(text)) throw invalid(`${what} contains half of a surrogate pair`);
}

/** The application's data as the text that is stored and sent, always the same bytes. */
export function dataText(data: object): string {
  const text: unknown = JSON.stringify(data); // undefined for a function
  if (typeof text !== "string" || !text.startsWith("{")) throw invalid("data is not a JSON object");
  checkText("data", text, MAX_DATA);
  let exponents = 0;
  const walk = (value: unknown, depth: number): void => {
    switch (typeof value) {
      case "string":
        return checkText("data", value, MAX_DATA);
      case "number":
        exponents += Number(/e[+-]?(\d+)/.exec(String(value))?.[1] ?? 0);
        if (exponents > MAX_EXPONENTS) throw invalid("data has numbers with too large exponents");
        return;
      case "object":
        if (value === null) return;
        if (depth > MAX_NESTING) throw invalid(`data nests deeper than ${MAX_NESTING} levels`);
        for (const [key, inner] of Object.entries(value)) {
          checkText("data", key, MAX_DATA);
          walk(inner, depth + 1);
        }
    }
  };
  walk(JSON.parse(text), 1); // what was written, not what was given: toJSON may stand between them
  return text;
}
