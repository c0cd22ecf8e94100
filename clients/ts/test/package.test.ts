// What is published: its files, its types, and the examples of the guide.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import ts from "typescript";
import { PACKAGE, REPOSITORY } from "./support/paths.js";

it("has the files that it names, and no dependency", () => {
  const manifest = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as { dependencies?: object; exports: Record<string, Record<string, string>> };
  assert.equal(manifest.dependencies, undefined);
  const [packed] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: PACKAGE, encoding: "utf8" })) as { files: { path: string }[] }[];
  const files = new Set(packed?.files.map((f) => f.path));
  for (const entry of [manifest.exports["."], manifest.exports["./node"]]) {
    for (const path of Object.values(entry ?? {})) assert.ok(files.has(path.replace("./", "")), `${path} is not packed`);
  }
  for (const path of files) assert.match(path, /^(dist\/|package\.json$|README\.md$)/);
  assert.doesNotMatch(readFileSync(join(PACKAGE, "dist/index.js"), "utf8"), /from "node:/, "browsers have no modules of Node");
});

it("compiles the examples of the guide against what is published", () => {
  const blocks = [...readFileSync(join(REPOSITORY, "docs/client-typescript.md"), "utf8").matchAll(/^```ts\n(.*?)^```/gms)].map((m) => m[1] ?? "");
  assert.ok(blocks.length >= 2, `there are ${blocks.length}`);
  const dir = join(PACKAGE, "build/guide"); // in the package, so that it finds itself by its name
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
  const files = blocks.map((text, i) => {
    const file = join(dir, `example-${i + 1}.ts`);
    writeFileSync(file, text);
    return file;
  });
  const program = ts.createProgram(files, {
    module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, target: ts.ScriptTarget.ES2022, lib: ["lib.es2023.d.ts", "lib.dom.d.ts"],
    strict: true, exactOptionalPropertyTypes: true, noEmit: true, types: ["node"],
  });
  const found = ts.getPreEmitDiagnostics(program);
  assert.equal(found.length, 0, ts.formatDiagnostics(found, { getCanonicalFileName: (name) => name, getCurrentDirectory: () => PACKAGE, getNewLine: () => "\n" }));
  assert.ok(program.getSourceFiles().some((f) => f.fileName.endsWith("dist/index.d.ts")), "the types come from dist");
});

it("can be imported by its name", async () => {
  const [main, node] = await Promise.all(["@tidings/client", "@tidings/client/node"].map((name) => import(name) as Promise<Record<string, unknown>>));
  assert.deepEqual(Object.keys(main ?? {}).sort(), ["Client", "ClosedError", "DiscardedError", "TidingsError", "codeOf"]);
  assert.deepEqual(Object.keys(node ?? {}), ["FileStorage"]);
});
