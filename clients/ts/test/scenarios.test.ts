// The scripts that a client of any language has to play right.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { REPOSITORY, temporary } from "./support/paths.js";
import { Script, type Scenario } from "./support/script.js";

const DIR = join(REPOSITORY, "client/testdata/scenarios");
const files = readdirSync(DIR).filter((name) => name.endsWith(".json"));

it("finds the scenarios", () => assert.ok(files.length >= 60, `there are ${files.length}`));

describe("scenarios", { concurrency: 8 }, () => {
  for (const file of files) {
    it(file.replace(".json", ""), async (t) => {
      const script = new Script();
      t.after(() => script.close());
      await script.play(JSON.parse(readFileSync(join(DIR, file), "utf8")) as Scenario, temporary(t));
    });
  }
});
