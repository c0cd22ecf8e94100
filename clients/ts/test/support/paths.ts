// Where the tests find things: they run from build/test/support.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The package, and the repository that it lies in. */
export const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));
export const REPOSITORY = join(PACKAGE, "../..");

/** A directory that is gone when the test is over. */
export function temporary(t: { after(f: () => void): void }): string {
  const dir = mkdtempSync(join(tmpdir(), "tidings-ts-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}
