// Chromium, and pages that may say no error and ask nobody but their own server.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type ConsoleMessage, type Page } from "playwright-core";

const PROGRAM = [process.env["CHROMIUM"] ?? "", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((p) => existsSync(p));

/** A browser with as many profiles as a test wants. */
export class Browsing {
  readonly #browser: Browser;
  readonly #site: string;
  readonly #contexts = new Set<BrowserContext>();
  #faults: string[] = [];
  #requests = 0;

  private constructor(browser: Browser, site: string) {
    this.#browser = browser;
    this.#site = site;
  }

  /** site is the origin that the pages come from and may ask. */
  static async start(site: string): Promise<Browsing> {
    assert.ok(PROGRAM, "there is no Chromium: install it (apt-get install chromium), or let CHROMIUM name one");
    return new Browsing(await chromium.launch({ executablePath: PROGRAM, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] }), site);
  }

  /** Opens a path in a new profile. */
  async open(path: string, options: BrowserContextOptions = {}): Promise<Page> {
    return this.openIn(await this.profile(options), path);
  }

  /** A new profile. */
  async profile(options: BrowserContextOptions = {}): Promise<BrowserContext> {
    const context = await this.#browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    this.#contexts.add(context);
    context.on("console", (m) => this.#said(m));
    context.on("weberror", (e) => this.#faults.push(`uncaught: ${e.error().stack ?? String(e.error())}`));
    context.on("page", (page) => page.on("websocket", (ws) => this.#asked(ws.url())));
    await context.route("**/*", (route) => (this.#asked(route.request().url()) ? route.continue() : route.abort()));
    return context;
  }

  async openIn(context: BrowserContext, path: string): Promise<Page> {
    const page = await context.newPage();
    await page.goto(this.#site + path);
    return page;
  }

  /** Closes all profiles, and fails when a page of theirs has said an error or asked another host. */
  async check(): Promise<void> {
    for (const context of this.#contexts) await context.close();
    this.#contexts.clear();
    const faults = this.#faults;
    const requests = this.#requests;
    this.#faults = [];
    this.#requests = 0;
    assert.deepEqual(faults, []);
    assert.ok(requests > 0, "no page has asked for anything");
  }

  async stop(): Promise<void> {
    await this.#browser.close();
  }

  #asked(url: string): boolean {
    this.#requests++;
    const own = url.startsWith(`${this.#site}/`) || url.startsWith(`${this.#site.replace(/^http/, "ws")}/`) || url.startsWith("data:");
    if (!own) this.#faults.push(`asked ${url}`);
    return own;
  }

  #said(m: ConsoleMessage): void {
    if (m.type() !== "error" && m.type() !== "warning") return;
    const text = m.text();
    const { url } = m.location();
    if (!refusedHandshake(text, url) && !refusedPage(text, url)) this.#faults.push(`console ${m.type()}: ${text} (${url})`);
  }
}

/**
 * What Chromium itself writes when a handshake is refused or broken off, and when /readyz says 503 after it, or a look at the notifications meets a restore. A page
 * cannot keep it from doing so, and a device that is offline has to try.
 */
function refusedHandshake(text: string, url: string): boolean {
  if (/^WebSocket connection to 'ws:\/\/127\.0\.0\.1:\d+\/dev\/line\/[^/']+\/v1\/ws' failed: /.test(text)) {
    return /(Unexpected response code: 503|net::ERR_CONNECTION_(RESET|CLOSED|REFUSED)|net::ERR_EMPTY_RESPONSE|Connection closed before receiving a handshake response)$/.test(text.trim());
  }
  return /^Failed to load resource: the server responded with a status of 503/.test(text) && /\/dev\/(line\/[^/]+\/readyz$|notifications\?)/.test(url);
}

/** What Chromium itself writes of a page of the console, not of what belongs to one, that is answered with a refusal: such a page says what was refused. */
function refusedPage(text: string, url: string): boolean {
  return /^Failed to load resource: the server responded with a status of (400|401|403|404|409)/.test(text) && /^http:\/\/[^/]+\/console(\/[\w/-]*)?(\?|$)/.test(url);
}
