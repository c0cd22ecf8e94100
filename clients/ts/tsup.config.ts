import { defineConfig } from "tsup";

export default defineConfig({
  entry: ["src/index.ts", "src/node.ts"],
  format: "esm",
  target: "es2022",
  platform: "neutral",
  external: [/^node:/],
  dts: true,
  clean: true,
});
