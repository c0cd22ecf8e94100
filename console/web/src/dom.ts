// Elements, made without markup: what people write is only ever text.

type Child = Node | string | undefined;

/** Makes an element. An attribute that is false or absent is left out, one that is true is empty; "on…" is a listener. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string | boolean | undefined | ((event: globalThis.Event) => void)> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== undefined));
  return made;
}

/** Sets a text, and leaves the element alone when it has it: a live region would say it again. */
export function setText(node: Element, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

/** The element of the page with an id; it has to be there. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** A list whose items have keys and signatures: an item whose signature has not changed keeps its element, and with it the focus. */
export class KeyedList<T> {
  readonly #list: HTMLElement;
  readonly #make: (item: T) => HTMLElement;
  readonly #made = new Map<string, { signature: string; node: HTMLElement }>();

  constructor(list: HTMLElement, make: (item: T) => HTMLElement) {
    this.#list = list;
    this.#make = make;
  }

  /** Shows items in order. Tells whether anything has changed. */
  show(items: readonly { key: string; signature: string; item: T }[]): boolean {
    let changed = false;
    const wanted = new Set(items.map((i) => i.key));
    const lose = (node: HTMLElement): void => {
      if (node.contains(document.activeElement)) this.#list.focus();
      changed = true;
    };
    for (const [key, { node }] of this.#made) {
      if (wanted.has(key)) continue;
      lose(node);
      node.remove();
      this.#made.delete(key);
    }
    let before: Element | null = this.#list.firstElementChild;
    for (const { key, signature, item } of items) {
      const had = this.#made.get(key);
      let node = had?.node;
      if (!node || had?.signature !== signature) {
        const fresh = this.#make(item);
        if (node) {
          lose(node);
          if (before === node) before = fresh;
          node.replaceWith(fresh);
        }
        node = fresh;
        changed = true;
        this.#made.set(key, { signature, node });
      }
      if (before === node) before = node.nextElementSibling;
      else this.#list.insertBefore(node, before);
    }
    return changed;
  }
}
