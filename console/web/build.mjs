// Builds what the program embeds: the TypeScript client as one module, and the demo page's script, which imports it. The results are committed, because the program is
// built with Go alone; --check fails when they are not what the sources give.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const REPOSITORY = fileURLToPath(new URL("../../", import.meta.url));
const STATIC = join(REPOSITORY, "console/static");

/** The page gets the client where every page gets it. */
const client = {
  name: "client",
  setup: ({ onResolve }) => void onResolve({ filter: /clients\/ts\/src\/index\.js$/ }, () => ({ path: "/client.js", external: true })),
};

/** One module, readable: whoever looks into the page shall understand it. */
async function bundle(entry, plugins) {
  const result = await build({
    entryPoints: [entry], plugins, bundle: true, write: false, format: "esm", target: "es2022", platform: "browser", charset: "utf8", legalComments: "none",
    absWorkingDir: REPOSITORY, banner: { js: `// Built from ${entry} by make web; do not edit.` },
  });
  return result.outputFiles[0].text;
}

const made = {
  "client.js": await bundle("clients/ts/src/index.ts", []),
  "demo/app.js": await bundle("console/web/src/app.ts", [client]),
};
let stale = false;
for (const [name, text] of Object.entries(made)) {
  const path = join(STATIC, name);
  const had = await readFile(path, "utf8").catch(() => "");
  if (had === text) continue;
  if (process.argv.includes("--check")) {
    console.error(`console/static/${name} is not what the sources give: run make web`);
    stale = true;
  } else {
    await writeFile(path, text);
  }
}
process.exitCode = stale ? 1 : 0;
