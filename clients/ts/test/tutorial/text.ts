// docs/tutorial.md as a list of what its reader does, in order. What a block is stands where the reader sees it, in its first line or in the one before it.

/** A file to write. */
export interface File {
  kind: "file";
  path: string;
  text: string;
}

/** Commands for one of the terminals, and what they print: `…` stands for anything. */
export interface Commands {
  kind: "commands";
  terminal: string;
  /** After the number in the first line: whether to leave it running, whether it fails. */
  hint: string;
  text: string;
  prints: string;
}

/** Something to do or to see in the browser. The test knows it by its name. */
export interface Check {
  kind: "check";
  name: string;
}

export type Step = File | Commands | Check;

/** The one block that is not carried out: a copy of this tree stands in for the clone. */
const CLONE = "git clone https://github.com/tidings-project/tidings && cd tidings";

/** Reads the page. What it does not understand is an error: nothing of the page goes unchecked by a slip. */
export function read(page: string): Step[] {
  const steps: Step[] = [];
  const lines = page.split("\n");
  let said = ""; // the last line of prose
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const check = /^<!-- check: (.+) -->$/.exec(line);
    if (check?.[1]) steps.push({ kind: "check", name: check[1] });
    else if (line.startsWith("```")) {
      const end = lines.indexOf("```", at + 1);
      if (end < 0) throw new Error(`line ${at + 1}: the block has no end`);
      try {
        block(steps, line.slice(3), lines.slice(at + 1, end).join("\n"), said);
      } catch (cause) {
        throw new Error(`line ${at + 1} of the tutorial: ${String(cause)}`, { cause });
      }
      at = end;
    } else if (line.trim()) said = line;
  }
  return steps;
}

function block(steps: Step[], info: string, text: string, said: string): void {
  const last = steps.at(-1);
  const title = /^\w+ title=(\S+)$/.exec(info)?.[1];
  if (title) {
    if (!said.includes(`\`${title}\``)) throw new Error(`the line before the block does not tell the reader that it is ${title}`);
    steps.push({ kind: "file", path: title, text: text + "\n" });
  } else if (info === "text") {
    if (last?.kind !== "commands" || last.prints) throw new Error("nothing can have printed this");
    last.prints = text;
  } else if (info === "sh") {
    if (text === CLONE) return;
    const [, terminal, hint = "", commands] = /^# terminal (\d)(?:: (.*))?\n([^]+)$/.exec(text) ?? [];
    if (!terminal || !commands) throw new Error("the first line of the block does not say which terminal it is for");
    steps.push({ kind: "commands", terminal, hint, text: commands, prints: "" });
  } else throw new Error(`a block of the kind "${info}" is not known here`);
}

/** Whether output has the lines that the page shows, one after the other. */
export function shows(output: string, lines: string): boolean {
  const pattern = lines.split("\n").map((line) => (line === "…" ? "(?:.*\n)*?" : `${literal(line)}[ \t]*\n`)).join("");
  return new RegExp(`^${pattern}`, "m").test(output.endsWith("\n") ? output : output + "\n");
}

function literal(line: string): string {
  return line.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/ +/g, " +")).join(".*");
}
