// Who cannot see, uses a keyboard, or has a small screen: what can be checked of a page by machine.

import assert from "node:assert/strict";
import axe from "axe-core";
import type { Page } from "playwright-core";

/** A phone, and a laptop. */
const WIDTHS_PX = [375, 1280];

/** Fails when axe finds something serious or critical on the page as it is, in light or in dark. */
export async function accessible(page: Page): Promise<void> {
  await page.waitForLoadState(); // before it, a page may be there without its style sheet
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    await page.evaluate(axe.source); // by the debugger, which the page's policy does not concern
    const { violations, passes } = await page.evaluate(async () => {
      const run = (window as unknown as { axe: typeof axe }).axe.run;
      const result = await run(document, { resultTypes: ["violations"] });
      return {
        passes: result.passes.length,
        violations: result.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
          .map((v) => ({ rule: v.id, impact: v.impact, nodes: v.nodes.map((n) => `${n.html.slice(0, 200)} ${n.failureSummary ?? ""}`) })),
      };
    });
    assert.deepEqual(violations, [], `${page.url()} in ${colorScheme}`);
    assert.ok(passes > 10, `axe has looked at nothing on ${page.url()}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

/** Fails when the page has to be scrolled sideways, on a phone or a laptop, or a control cannot be reached there: by keyboard, or because it is outside or covered. */
export async function reachable(page: Page): Promise<void> {
  await page.waitForLoadState(); // as above
  const before = page.viewportSize();
  for (const width of WIDTHS_PX) await reachableAt(page, width);
  if (before) await page.setViewportSize(before);
}

async function reachableAt(page: Page, widest: number): Promise<void> {
  await page.setViewportSize({ width: widest, height: 740 });
  const { width, faults, controls } = await page.evaluate((widest) => {
    const found = [...document.querySelectorAll<HTMLElement>("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")];
    const faults: string[] = [];
    let controls = 0;
    for (const c of found) {
      if (!c.checkVisibility({ visibilityProperty: true }) || (c as HTMLButtonElement).disabled) continue;
      controls++;
      const name = c.outerHTML.slice(0, 120);
      c.scrollIntoView({ block: "center", inline: "nearest" });
      c.focus({ preventScroll: true });
      if (document.activeElement !== c) faults.push(`cannot be focused: ${name}`);
      const lies = c.getClientRects()[0] ?? c.getBoundingClientRect(); // of a link that is broken into lines, the first
      if (lies.left < 0 || lies.right > widest + 0.5 || lies.width === 0 || lies.height === 0) faults.push(`lies outside (${lies.left} to ${lies.right}): ${name}`);
      const top = document.elementFromPoint(lies.left + lies.width / 2, lies.top + lies.height / 2);
      if (!top || !c.contains(top)) faults.push(`is covered by ${top?.outerHTML.slice(0, 80)}: ${name}`);
    }
    return { width: document.documentElement.scrollWidth, faults, controls };
  }, widest);
  assert.ok(width <= widest, `${page.url()} is ${width} px wide`);
  assert.deepEqual(faults, [], page.url());
  assert.ok(controls > 0, `${page.url()} has no control`);
}
