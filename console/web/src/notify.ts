// The notification corner: send one, let the provider go silent, and watch attempts and states.

import * as dev from "./dev.js";
import { byId, el, KeyedList, setText } from "./dom.js";
import { clock } from "./words.js";

const MAX_SHOWN = 6;
const MAX_KNOWN = 24;

/** What each channel promises after silence; docs/channels.md says more. */
const CONTRACTS: Record<string, { silent: boolean; text: string }> = {
  push: { silent: true, text: "This provider recognises a repeated key for 24 hours. After silence the same request goes out again, and still there is one message." },
  sms: { silent: true, text: "This provider recognises no repetition, but can be asked. After silence it is asked for our reference, and nothing is sent again that it has." },
  plain: { silent: true, text: "This provider neither recognises a repetition nor can be asked. After silence nobody can know, so that the task waits for a person in the console." },
  email: { silent: false, text: "SMTP promises nothing when the reply to the final dot is missing: then a person decides. Here the mail server answers." },
  webhook: { silent: false, text: "A receiver that declares that it remembers ids gets the request again; this one declares nothing, so that silence would mean a person. Here it answers." },
};

const DONE = new Set(["SENT", "FAILED", "SUPPRESSED"]);

const STATES: Record<string, string> = {
  PENDING: "waits for its turn", SENDING: "being sent", UNKNOWN: "unknown: it may have been accepted", SENT: "accepted by the provider", FAILED: "not sent", SUPPRESSED: "not sent: no longer wanted",
};

const OUTCOMES: Record<string, string> = {
  ACCEPTED: "accepted", ACCEPTED_REPLAY: "accepted: the provider knew it already", TIMEOUT: "no answer: nobody knows", IO_ERROR: "the connection broke: nobody knows",
  QUERY_FOUND: "asked: the provider has it", QUERY_NOT_FOUND: "asked: the provider does not have it", QUERY_FAILED: "asked, without an answer", REJECTED: "refused",
  NOT_SENT: "nothing was sent", THROTTLED: "refused for now", HTTP_5XX: "the provider failed",
};

/** A notification that is watched. */
interface Watched {
  user: string;
  key: string;
  found?: dev.Notification;
}

export class Notifications {
  readonly #attempt: (what: () => Promise<unknown>) => void;
  readonly #user = byId("n-user") as HTMLSelectElement;
  readonly #channel = byId("n-channel") as HTMLSelectElement;
  readonly #silent = byId("n-silent") as HTMLInputElement;
  readonly #text = byId("n-text") as HTMLInputElement;
  readonly #list: KeyedList<Watched>;
  #state: dev.DevState | undefined;
  #known: Watched[] = []; // newest first
  #polling = false;

  constructor(attempt: (what: () => Promise<unknown>) => void) {
    this.#attempt = attempt;
    this.#list = new KeyedList(byId("sent"), (w) => this.#item(w));
    for (const name of Object.keys(CONTRACTS)) this.#channel.append(el("option", { value: name }, name));
    this.#channel.addEventListener("change", () => this.#contract());
    this.#contract();
    byId("n-form").addEventListener("submit", (e) => {
      e.preventDefault();
      this.#send();
    });
  }

  paint(state: dev.DevState): void {
    this.#state = state;
    if (this.#user.options.length === 0) for (const p of state.people) this.#user.append(el("option", { value: p.user }, p.name));
    for (const link of document.querySelectorAll<HTMLAnchorElement>("a.console-link")) link.href = state.console;
    setText(byId("console-key"), state.key);
  }

  #contract(): void {
    const { silent = false, text = "" } = CONTRACTS[this.#channel.value] ?? {};
    setText(byId("n-contract"), text);
    this.#silent.disabled = !silent;
    if (!silent) this.#silent.checked = false;
  }

  #send(): void {
    const n = { user: this.#user.value, channel: this.#channel.value, title: "Tidings demo", body: this.#text.value, silent: this.#silent.checked };
    this.#attempt(async () => {
      const { event_key: key } = await dev.notify(n);
      this.#known = [{ user: n.user, key }, ...this.#known];
      await this.poll();
    });
  }

  /** Looks what has become of the newest ones; the page calls it every second. */
  async poll(): Promise<void> {
    if (this.#polling || !this.#state) return;
    this.#polling = true;
    try {
      for (const { user } of this.#state.people) {
        const keys = new Set((await dev.newest(user)).tasks.map((t) => t.event_key)); // a notification has a task for each channel
        for (const key of [...keys].slice(0, MAX_SHOWN)) {
          if (!this.#known.some((w) => w.user === user && w.key === key)) this.#known.push({ user, key });
        }
      }
      for (const w of this.#known.slice(0, MAX_KNOWN)) if (!done(w)) w.found = await dev.notification(w.user, w.key);
      this.#known = this.#known.filter((w) => w.found).sort((a, b) => Date.parse(b.found?.created_at ?? "") - Date.parse(a.found?.created_at ?? "")).slice(0, MAX_KNOWN);
    } finally {
      this.#polling = false;
      const shown = this.#known.slice(0, MAX_SHOWN);
      this.#list.show(shown.map((w) => ({ key: `${w.user} ${w.key}`, signature: JSON.stringify(w.found?.tasks ?? []), item: w })));
      byId("sent-none").hidden = shown.length > 0;
    }
  }

  #item({ user, key, found }: Watched): HTMLElement {
    const name = this.#state?.people.find((p) => p.user === user)?.name ?? user;
    const item = el("li", { "data-event-key": key }, el("p", { class: "what" }, el("strong", {}, name), found?.body || found?.title ? `: ${found.body || found.title}` : "", " ",
      el("small", {}, found ? clock(Date.parse(found.created_at)) : "", key.startsWith("unread-") ? " · unread in the chat, with no device connected" : "")));
    for (const t of found?.tasks ?? []) item.append(this.#task(t));
    if (found && (found.tasks ?? []).length === 0) item.append(el("p", {}, "There is no address for it."));
    return item;
  }

  #task(t: dev.Task): HTMLElement {
    const state = t.review ? "waits for a person" : (STATES[t.state] ?? t.state);
    const head = el("p", {}, el("span", { class: "channel" }, t.channel), " ", el("span", { class: `pill ${t.review ? "review" : t.state.toLowerCase()}` }, t.state), ` ${state}`);
    if (t.review) head.append(" ", el("a", { href: `${this.#state?.console ?? "/console"}/tasks/${encodeURIComponent(t.id)}` }, "Decide in the console"));
    const tried = t.attempts ?? [];
    const smooth = t.state === "SENT" && tried.length === 1;
    if (smooth) head.append(" ", el("small", {}, "at the first attempt"));
    const attempts = tried.map((a) => el("li", {}, el("span", {}, a.action.toLowerCase(), ": "), a.outcome ? (OUTCOMES[a.outcome] ?? a.outcome) : "under way",
      " ", el("small", {}, `${clock(Date.parse(a.started_at))}${a.outcome ? ` · ${a.outcome}` : ""}`)));
    return el("div", { class: "task", "data-state": t.review ? "REVIEW" : t.state }, head, smooth ? undefined : el("ol", { class: "attempts" }, ...attempts));
  }
}

/** Nothing more happens to it. */
function done(w: Watched): boolean {
  const tasks = w.found?.tasks;
  return tasks !== undefined && tasks.every((t) => DONE.has(t.state) && !t.review);
}
