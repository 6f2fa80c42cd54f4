// The library: all skills, agents, commands, personas and plugins; which of them a message gets; one item in detail.

import { getJson } from "./api.js";
import { debounce, element, fromHtml, pageState } from "./dom.js";
import { ItemDetail } from "./library_item.js";
import { MessageTrial } from "./message_trial.js";
import { loadStyle } from "./styles.js";

const KINDS = [
  ["", "All"],
  ["skill", "Skills"],
  ["command", "Commands"],
  ["agent", "Agents"],
  ["persona", "Personas"],
  ["plugin", "Plugins"],
];
const PAGE = 200;

export async function show(root, context) {
  await loadStyle("/static/css/library.css");
  const [kind, key] = context.parameters;
  const view = new LibraryView(root, kind && key ? { kind, key } : null, context);
  await view.load();
  return () => view.end();
}

class LibraryView {
  constructor(root, selected, context) {
    this.root = root;
    this.selected = selected;
    this.context = context;
    this.items = [];
    this.costs = {};
    this.kind = context.query.get("kind") ?? "";
    this.limit = PAGE;
    this.build();
  }

  end() {
    this.trial.end();
    this.detail?.end();
  }

  build() {
    this.search = element("input", { type: "search", class: "search", placeholder: "Filter by name, description or path", "aria-label": "Filter items", oninput: debounce(() => this.draw(), 80) });
    this.tabs = element("div", { class: "tabs", role: "group", "aria-label": "Kinds of items" });
    this.trust = element("div", {});
    this.others = element("div", {});
    this.list = element("div", {}, pageState("loading", "Reading the library…"));
    this.trial = new MessageTrial();
    this.detail = this.selected ? new ItemDetail(this.selected, (key) => this.onChange(key)) : null;
    this.root.classList.toggle("has-detail", Boolean(this.selected));
    this.root.append(
      element(
        "div",
        { class: "page library-page" },
        element("div", { class: "toolbar library-toolbar" }, element("h1", {}, "Library"), this.search),
        this.trust,
        this.others,
        this.selected ? null : this.trial.root,
        element("div", { class: "library-columns" }, element("section", { class: "library-list", "aria-label": "Items" }, this.tabs, this.list), this.detail?.root),
      ),
    );
  }

  /** `key`: of a skill that was saved, perhaps under another name. */
  onChange(key = this.selected.key) {
    if (key === this.selected.key) void this.load();
    else this.context.navigate(`/library/${encodeURIComponent(this.selected.kind)}/${encodeURIComponent(key)}`);
  }

  async load() {
    try {
      const found = await getJson("/api/library/items");
      this.items = found.items;
      this.showTrust(found.trust);
      this.showOthers(found.others);
      this.draw();
      if (!this.selected) {
        this.costs = await getJson("/api/library/costs");
        this.draw();
      }
    } catch (error) {
      this.list.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
  }

  showTrust({ state, text }) {
    if (!["untrusted", "changed"].includes(state)) return this.trust.replaceChildren();
    const command = element("code", {}, "kitbag trust");
    this.trust.replaceChildren(
      element("div", { class: "library-trust", role: "status" }, element("strong", {}, `${text}.`), " Agents don’t get its items, and nothing of it runs. Review it and trust it in a terminal: ", command),
    );
  }

  /** Problems of files from which no item could be read, and of settings. */
  showOthers(blocks) {
    const title = blocks.length === 1 ? "1 problem in another file" : `${blocks.length} problems in other files`;
    this.others.replaceChildren(...(blocks.length ? [element("details", { class: "library-others" }, element("summary", {}, title), element("div", { class: "item-blocks" }, ...blocks.map(fromHtml)))] : []));
  }

  draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = this.items.filter((item) => words.every((word) => `${item.name} ${item.summary} ${item.path} ${item.scope}`.toLowerCase().includes(word)));
    this.drawTabs(matching);
    const shown = this.kind ? matching.filter((item) => item.kind === this.kind) : matching;
    if (!shown.length) {
      const isEmpty = !this.items.some((item) => !this.kind || item.kind === this.kind);
      this.list.replaceChildren(isEmpty ? pageState("empty", "Nothing here yet", "Create a skill with `kitbag new skill NAME`, or install a plugin with `kitbag plugins install`.") : pageState("empty", "No item matches", "Change the filter above."));
      return;
    }
    const more = shown.length > this.limit ? element("button", { type: "button", class: "button", onclick: () => this.showMore() }, `Show more (${(shown.length - this.limit).toLocaleString("en")})`) : null;
    const rows = shown.slice(0, this.limit);
    this.list.replaceChildren(...[this.selected ? this.compact(rows) : this.table(rows), more].filter(Boolean));
  }

  showMore() {
    this.limit *= 2;
    this.draw();
  }

  drawTabs(matching) {
    const buttons = KINDS.map(([kind, label]) => {
      const count = kind ? matching.filter((item) => item.kind === kind).length : matching.length;
      return element("button", { type: "button", "aria-pressed": String(kind === this.kind), "aria-current": kind === this.kind ? "true" : null, onclick: () => this.choose(kind) }, `${label} ${count}`);
    });
    const focused = [...this.tabs.children].indexOf(document.activeElement);
    this.tabs.replaceChildren(...buttons);
    if (focused >= 0) buttons[focused].focus();
  }

  choose(kind) {
    this.kind = kind;
    this.limit = PAGE;
    this.draw();
  }

  table(items) {
    const heads = [["Name", ""], ["Scope", ""], ["State", ""], ["Catalog", "number"], ["Loaded", "number"], ["Files", "number"], ["Description", ""]];
    const head = element("tr", {}, ...heads.map(([label, css]) => element("th", { scope: "col", class: css, title: TITLES[label] }, label)));
    const body = items.map((item) => {
      const [loaded, files] = this.costs[`${item.kind}/${item.key}`] ?? [];
      return element(
        "tr",
        { class: item.state === "off" || item.shadowed_by ? "is-off" : "" },
        element("td", { class: "library-name" }, nameLink(item), element("span", { class: "library-kind" }, item.kind)),
        element("td", {}, element("span", { class: "badge" }, item.scope)),
        element("td", {}, ...stateBadges(item)),
        element("td", { class: "number" }, figure(item.level_0)),
        element("td", { class: "number" }, item.shadowed_by ? "" : figure(loaded)),
        element("td", { class: "number" }, item.shadowed_by ? "" : figure(files)),
        element("td", { class: "library-summary" }, element("span", { title: item.summary }, item.summary), item.note ? element("span", { class: "library-note" }, item.note) : null),
      );
    });
    return element("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Items" }, element("table", { class: "data-table library-table" }, element("thead", {}, head), element("tbody", {}, ...body)));
  }

  compact(items) {
    const isSelected = (item) => item.kind === this.selected.kind && item.key === this.selected.key && !item.shadowed_by;
    return element("ul", { class: "library-compact" }, ...items.map((item) => element("li", { class: isSelected(item) ? "is-selected" : "" }, nameLink(item, isSelected(item)), element("span", { class: "library-kind" }, `${item.kind}, ${item.scope}`), ...stateBadges(item))));
  }
}

const TITLES = {
  Catalog: "Level 0: tokens of its line in the catalog, in every request",
  Loaded: "Level 1: tokens when it is loaded",
  Files: "Level 2: tokens of its other files, read when needed",
};

function nameLink(item, isSelected = false) {
  return element("a", { href: `/library/${encodeURIComponent(item.kind)}/${encodeURIComponent(item.key)}`, "aria-current": isSelected ? "page" : null }, item.name);
}

function stateBadges(item) {
  const badges = [];
  if (item.shadowed_by) badges.push(["warning", "shadowed"]);
  else if (item.state && item.state !== "on") badges.push([item.state === "off" ? "bad" : "accent", item.state]);
  if (item.is_untrusted) badges.push(["warning", "untrusted"]);
  if (item.problems) badges.push(["warning", item.problems === 1 ? "1 problem" : `${item.problems} problems`]);
  if (!badges.length && item.state === "on") badges.push(["good", "on"]);
  return badges.map(([tone, text]) => element("span", { class: `badge badge-${tone}` }, text));
}

function figure(tokens) {
  return tokens === undefined ? "…" : tokens ? tokens.toLocaleString("en") : "–";
}
