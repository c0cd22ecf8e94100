// The operator console in Chromium, against a real `tidings dev`.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, describe, it } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { accessible, reachable } from "./support/axe.js";
import { Browsing } from "./support/browsing.js";
import { Dev } from "./support/dev.js";
import { eventually } from "./support/wait.js";

interface Task {
  id: string;
  user: string;
  event_key: string;
  state: string;
  attempt_count: number;
  attempts: { outcome?: string; detail?: string; worker: string }[];
}

describe("the console", { timeout: 600_000 }, () => {
  let dev: Dev;
  let browsing: Browsing;

  before(async () => {
    dev = await Dev.start();
    browsing = await Browsing.start(dev.url);
  });
  afterEach(() => browsing.check());
  after(async () => {
    await browsing?.stop();
    await dev?.stop();
  });

  /** A browser of somebody who has signed in by the form. */
  async function signedIn(key?: string): Promise<BrowserContext> {
    const context = await browsing.profile();
    const page = await browsing.openIn(context, "/console");
    await page.getByLabel("Your name").fill("ana");
    await page.getByLabel("Server key").fill(key ?? (await dev.state()).key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    return context;
  }

  async function open(path: string, key?: string): Promise<Page> {
    return browsing.openIn(await signedIn(key), path);
  }

  const task = (id: string): Promise<Task> => dev.api<Task>("GET", `reviews/${id}`);

  /** A task that waits for a person: its provider took it and never answered. */
  async function parked(body = "It is on its way."): Promise<Task> {
    const { event_key } = await dev.post<{ event_key: string }>("notifications", { user: "u-ana", channel: "plain", title: "Your order", body, silent: true });
    return eventually("the task waits for a person", async () => {
      const { reviews } = await dev.api<{ reviews: Task[] }>("GET", "reviews?limit=500");
      return reviews.find((t) => t.event_key === event_key);
    });
  }

  it("refuses a wrong key, and lets nobody in without one", async () => {
    const page = await browsing.open("/console/reviews");
    assert.match(page.url(), /\/console\/sign-in\?next=/);
    await page.getByLabel("Your name").fill("ana");
    await page.getByLabel("Server key").fill("tdk_this-is-nobodys-key");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("unknown or revoked").waitFor();
    assert.ok(!(await page.content()).includes("nobodys"), "the page repeats the key");
    assert.ok(!page.url().includes("nobodys"), "the key is in the address");
    assert.deepEqual(await page.context().cookies(), []);
    await accessible(page);
    await reachable(page);

    await page.getByLabel("Server key").fill((await dev.state()).key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "Reviews" }).waitFor();
    assert.match(page.url(), /\/console\/reviews$/);
    const [cookie] = await page.context().cookies();
    assert.deepEqual({ path: cookie?.path, httpOnly: cookie?.httpOnly, sameSite: cookie?.sameSite, expires: cookie?.expires },
      { path: "/console", httpOnly: true, sameSite: "Strict", expires: -1 });
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.goto(`${dev.url}/console`);
    assert.match(page.url(), /\/console\/sign-in$/);
  });

  it("shows all of a parked task on one page, and settles it with a note", async () => {
    const parkedTask = await parked('<img src="x" onerror="document.title=1"> & more');
    const page = await open("/console");
    await page.getByRole("link", { name: "Reviews" }).first().click();
    await page.getByRole("link", { name: parkedTask.event_key }).click();
    for (const words of ['<img src="x" onerror="document.title=1"> & more', "TIMEOUT", "It recognises no repeated request.", "whether the provider accepted it", "What a resend risks:",
      parkedTask.id.replaceAll("-", "")]) {
      await page.getByText(words).first().waitFor();
    }
    assert.equal(await page.locator("main img").count(), 0);
    await page.getByLabel("It was sent").check();
    await page.getByLabel("Note").fill("the provider's log has it");
    await page.getByRole("button", { name: "Record it" }).click();
    await page.getByRole("status").getByText("Recorded as SENT").waitFor();
    const settled = await task(parkedTask.id);
    assert.equal(settled.state, "SENT");
    assert.equal(settled.attempts.at(-1)?.outcome, "MANUAL_SENT");
    assert.equal(settled.attempts.at(-1)?.detail, "the provider's log has it");
    assert.match(settled.attempts.at(-1)?.worker ?? "", /:ana$/);
    await page.reload();
    assert.equal(await page.getByRole("status").count(), 0, "what was done is said twice");
  });

  it("says who was faster", async () => {
    const parkedTask = await parked();
    const page = await open(`/console/tasks/${parkedTask.id}`);
    await dev.api("POST", `reviews/${parkedTask.id}`, { state: "FAILED", attempt_count: parkedTask.attempt_count });
    await page.getByLabel("Send it once more").check();
    await page.getByRole("button", { name: "Record it" }).click();
    await page.getByRole("alert").getByText("ALREADY_SETTLED").waitFor();
    assert.equal((await task(parkedTask.id)).state, "FAILED");
  });

  it("settles many after a confirmation, and tells what became of each", async () => {
    const tasks = [await parked(), await parked(), await parked()];
    const page = await open("/console/reviews?user=u-ana");
    for (const t of tasks) await page.getByLabel(`Pick ${t.event_key} for`).check();
    await page.getByLabel("It was not sent").check();
    await page.getByRole("button", { name: "Settle those picked" }).click();
    await page.getByRole("heading", { name: "Settle 3 tasks as FAILED?" }).waitFor();
    for (const t of tasks) assert.equal((await task(t.id)).state, "UNKNOWN", "a task was settled before the confirmation");
    await accessible(page);
    await reachable(page);
    const [first, ...others] = tasks as [Task, Task, Task];
    await dev.api("POST", `reviews/${first.id}`, { state: "SENT", attempt_count: first.attempt_count });
    await page.getByLabel("Note").fill("the provider was down");
    await page.getByRole("button", { name: "Settle 3 tasks as FAILED" }).click();
    await page.getByText("2 tasks recorded as FAILED").waitFor();
    await page.getByText("ALREADY_SETTLED").waitFor();
    await accessible(page);
    await reachable(page);
    assert.equal((await task(first.id)).state, "SENT");
    for (const t of others) assert.equal((await task(t.id)).state, "FAILED");
  });

  it("can be used with the keyboard alone", async () => {
    const parkedTask = await parked();
    const page = await browsing.open(`/console/tasks/${parkedTask.id}`);
    /** Goes on by Tab until what has this id or says this has the focus, and that is to be seen. */
    const tabTo = async (what: string): Promise<void> => {
      for (let i = 0; i < 60; i++) {
        await page.waitForLoadState(); // before it, a page may be there without its style sheet
        await page.keyboard.press("Tab");
        const at = await page.evaluate(() => {
          const e = document.activeElement;
          const style = e && getComputedStyle(e);
          return { id: e?.id, text: e?.textContent?.trim(), seen: style?.outlineStyle !== "none" && parseFloat(style?.outlineWidth ?? "0") >= 2 };
        });
        if (at.id !== what && at.text !== what) continue;
        assert.ok(at.seen, `the focus on ${what} is not to be seen`);
        return;
      }
      assert.fail(`Tab does not reach ${what}`);
    };
    await tabTo("operator");
    await page.keyboard.type("ana");
    await tabTo("key");
    await page.keyboard.type((await dev.state()).key);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    await tabTo("Skip to the content");
    await page.keyboard.press("Enter");
    await tabTo("v-SENT");
    await page.keyboard.press("ArrowDown");
    await tabTo("note");
    await page.keyboard.type("asked her");
    await tabTo("Record it");
    await page.keyboard.press("Enter");
    await page.getByRole("status").getByText("Recorded as FAILED").waitFor();
    assert.equal((await task(parkedTask.id)).state, "FAILED");
  });

  it("pauses a channel and lets it go on", async () => {
    const page = await open("/console/channels");
    await page.getByRole("link", { name: "sms" }).click();
    await page.getByLabel("Reason").fill("the provider asked for it");
    await page.getByLabel("For how many minutes").fill("30");
    await page.getByRole("button", { name: "Pause sms" }).click();
    await page.getByRole("status").getByText("The channel sms is paused.").waitFor();
    const channel = async (): Promise<{ pause?: { reason: string; by: string } } | undefined> =>
      (await dev.api<{ channels: { name: string; pause?: { reason: string; by: string } }[] }>("GET", "channels")).channels.find((c) => c.name === "sms");
    assert.equal((await channel())?.pause?.reason, "the provider asked for it");
    await accessible(page);
    await reachable(page);
    await page.getByRole("button", { name: "Resume sms" }).click();
    await page.getByRole("status").getByText("The channel sms goes on.").waitFor();
    assert.equal((await channel())?.pause, undefined);
  });

  it("shows what was said only with the scope for it, and only when asked to", async () => {
    const { conv, people } = await dev.state();
    const sent = await fetch(`${dev.url}/v1/conversations/${conv}/messages/m-console`, { method: "PUT",
      headers: { Authorization: `Bearer ${people[0]?.token}`, "Content-Type": "application/json" }, body: JSON.stringify({ body: "between us" }) });
    assert.equal(sent.status, 201);
    const path = `/console/conversation?conv=${conv}`;
    const blind = await open(path, await dev.key("blind", "operate"));
    await blind.getByText("your key lacks the scope").waitFor();
    assert.equal(await blind.getByText("Show what was said").count(), 0);
    await blind.goto(`${dev.url}${path}&bodies=true`);
    await blind.getByRole("alert").getByText("FORBIDDEN").waitFor();
    assert.ok(!(await blind.content()).includes("between us"));

    const page = await open(path);
    assert.ok(!(await page.content()).includes("between us"));
    await page.getByRole("link", { name: "Show what was said" }).click();
    await page.getByText("between us").waitFor();
    await page.getByText("is in the log of the server").waitFor();
    await accessible(page);
    await page.getByRole("link", { name: "Hide it" }).click();
    await page.getByRole("link", { name: "Show what was said" }).waitFor();
    assert.ok(!(await page.content()).includes("between us"));
  });

  it("tells which scope a key lacks", async () => {
    const page = await open("/console/reviews", await dev.key("operator", "operate"));
    await page.getByRole("heading", { name: "Not with this key" }).waitFor();
    await page.getByText("--scopes operate,review").waitFor();
    await accessible(page);
    await reachable(page);
  });

  it("is readable on each page: in light, in dark, at 375 px", async () => {
    const parkedTask = await parked();
    const { conv } = await dev.state();
    const page = await open("/console");
    for (const path of ["", "/reviews", `/tasks/${parkedTask.id}`, `/reviews/confirm?which=all&state=resend&all=${parkedTask.id}.1`, "/search", "/search?user=u-ana", "/channels", "/channel?name=push",
      "/conversations?conv=c-", `/conversation?conv=${conv}`, `/conversation?conv=${conv}&bodies=true`, "/gateways", "/user?user=u-ana", "/report", "/nothing"]) {
      await page.goto(`${dev.url}/console${path}`);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await accessible(page);
      await reachable(page);
    }
    await dev.api("POST", `reviews/${parkedTask.id}`, { state: "FAILED", attempt_count: parkedTask.attempt_count });
  });

  it("shows the acceptance report, in another process of the same installation", async () => {
    const dir = await mkdtemp(join(tmpdir(), "tidings-report-"));
    const file = join(dir, "report.json");
    const check = { kind: "normal", level: "real component", promise: "P1", title: "concurrent Notify with one key: one notification, one created=true, one task per enabled channel" };
    await writeFile(file, JSON.stringify({ accepted: false, problems: ["33-T2: 1 of 20 runs failed"], commits: ["0123456789abcdef0123456789abcdef01234567"], versions: { go: ["go1.26"] },
      counts: [{ by: "family", name: "33", core: 0, core_passed: 0, checks: 2, passed: 1 }],
      cards: [{ id: "P1", promise: "One (user_id, event_key) is one logical notification.", status: "not shown", reason: "33-T2 failed", level: "real component", assumptions: ["one primary"], unknowns: ["a failover"], checks: ["33-T1", "33-T2"] }],
      checks: [{ ...check, id: "33-T1", verdict: "PASS", runs: 20, passes: 20, bound: 0.139 }, { ...check, id: "33-T2", verdict: "FAIL", runs: 20, passes: 19, reason: "a line does not hold" },
        { ...check, id: "34-X", verdict: "NOT_RUN", runs: 0, passes: 0, reason: "three machines", requires: "three machines and a day" }],
      canary: { ok: true, runs: 40, by_rule: 21 } }));
    const url = await dev.serve("--roles", "api", "--report-file", file);
    const other = await Browsing.start(url);
    try {
      const context = await other.profile();
      await context.addCookies((await (await signedIn()).cookies()).map((c) => ({ ...c }))); // cookies know no ports: who has signed in at one process has at each
      const page = await other.openIn(context, "/console/report");
      await page.getByText("Not accepted: 1 problem").waitFor();
      await page.getByText("three machines and a day").waitFor();
      await accessible(page);
      await reachable(page);
      await other.check();
    } finally {
      await other.stop();
      await rm(dir, { recursive: true });
    }
  });

  it("works without scripts", async () => {
    const parkedTask = await parked();
    const context = await browsing.profile({ javaScriptEnabled: false });
    const page = await browsing.openIn(context, `/console/tasks/${parkedTask.id}`);
    await page.locator("#operator").fill("ana");
    await page.locator("#key").fill((await dev.state()).key);
    await page.locator("main button").click();
    await page.locator("#v-SENT").check();
    await page.locator("#settle ~ form button").click();
    await page.locator("[role=status]").getByText("Recorded as SENT").waitFor();
  });
});
