// The reading of the tutorial refuses what it does not understand, and tells other output from the one that is shown.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { read, shows } from "./text.js";

const fence = "```";

describe("the tutorial's text", () => {
  it("is read in order", () => {
    const page = [
      "Words.", `${fence}sh`, "git clone https://github.com/tidings-project/tidings && cd tidings", fence,
      "`a/main.go`:", "", `${fence}go title=a/main.go`, "package main", fence,
      `${fence}sh`, "# terminal 1: leave it running", "go run ./a", "", "go version", fence, "It says:", `${fence}text`, "… there", fence, "<!-- check: a look -->",
    ];
    assert.deepEqual(read(page.join("\n")), [
      { kind: "file", path: "a/main.go", text: "package main\n" },
      { kind: "commands", terminal: "1", hint: "leave it running", text: "go run ./a\n\ngo version", prints: "… there" },
      { kind: "check", name: "a look" },
    ]);
  });

  it("is refused where a reader would be lost", () => {
    for (const [why, ...lines] of [
      ["without a terminal", `${fence}sh`, "go run ./a", fence],
      ["without commands", `${fence}sh`, "# terminal 1", fence],
      ["another clone", `${fence}sh`, "git clone https://example.org/tidings && cd tidings", fence],
      ["a file without its name before it", "Write this:", `${fence}go title=a/main.go`, "package main", fence],
      ["a block of no kind", fence, "go run ./a", fence],
      ["another language", `${fence}go`, "package main", fence],
      ["output of nothing", `${fence}text`, "there", fence],
      ["no end", `${fence}sh`, "# terminal 1", "go run ./a"],
    ]) assert.throws(() => read(lines.join("\n")), Error, why);
  });

  it("shows what was printed, and nothing else", () => {
    const output = "noise\nTASK   USER\n0123   u-ana  timeout 3 s\nlast";
    for (const yes of ["TASK USER", "TASK USER\n0123 u-ana …", "noise\n…\nlast", "noise\n…\nTASK USER", "… u-ana …"]) assert.ok(shows(output, yes), yes);
    for (const no of ["USER", "TASK", "TASK USER\nlast", "last\n…\nnoise", "… u-ben …", "noise USER"]) assert.ok(!shows(output, no), no);
  });
});
