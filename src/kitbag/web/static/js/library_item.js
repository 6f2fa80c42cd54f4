// One item of the library: what it is, what a model gets of it at each level, what an audit finds, and its editor.

import { getJson, postJson } from "./api.js";
import { element, fromHtml, pageState, showHint } from "./dom.js";
import { SkillEditor } from "./skill_editor.js";

const LEVELS = ["in the catalog", "when loaded", "in files"];

export class ItemDetail {
  constructor(item, onChange) {
    this.item = item;
    this.onChange = onChange;
    this.query = new URLSearchParams({ kind: item.kind, key: item.key });
    this.part = "overview";
    this.loads = 0;
    this.editor = null;
    this.build();
    void this.load();
  }

  end() {
    this.loads += 1;
    this.editor?.end();
  }

  build() {
    const canEdit = ["skill", "command"].includes(this.item.kind);
    this.parts = [["overview", "Overview"], ["levels", "What the model gets"], ["audit", "Audit"], ...(canEdit ? [["edit", "Edit"]] : [])];
    this.head = element("div", { class: "toolbar item-head" }, element("a", { class: "button ghost item-back", href: "/library" }, "← Library"), element("h2", {}, this.item.key));
    this.costs = element("dl", { class: "item-costs" });
    this.tabs = this.parts.map(([part, label]) =>
      element("button", { type: "button", role: "tab", id: `item-tab-${part}`, "aria-controls": "item-panel", "aria-selected": String(part === this.part), tabindex: part === this.part ? "0" : "-1", onclick: () => this.choose(part), onkeydown: (event) => this.onTabKey(event) }, label),
    );
    this.panel = element("div", { class: "item-panel", role: "tabpanel", id: "item-panel", tabindex: "0", "aria-labelledby": "item-tab-overview" }, pageState("loading", "Loading…"));
    this.root = element("section", { class: "card item-detail", "aria-label": "Item" }, this.head, this.costs, element("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the item" }, ...this.tabs), this.panel);
  }

  async load() {
    const current = ++this.loads;
    try {
      const found = await getJson(`/api/library/item?${this.query}`);
      if (current !== this.loads) return;
      this.found = found;
      this.showHead();
      if (["overview", "levels"].includes(this.part)) this.showPart();
    } catch (error) {
      if (current === this.loads) this.panel.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
  }

  showHead() {
    const { name, kind, scope, state, states, tokens } = this.found;
    const children = [element("a", { class: "button ghost item-back", href: "/library" }, "← Library"), element("h2", {}, name), element("span", { class: "badge" }, kind), element("span", { class: "badge" }, scope)];
    if (kind === "plugin") {
      const isOn = state === "on";
      children.push(element("button", { type: "button", class: "button item-state", onclick: () => this.setState(isOn ? "off" : "on") }, isOn ? "Disable" : "Enable"));
    } else if (states.length) {
      const select = element("select", { "aria-label": "State", onchange: (event) => this.setState(event.target.value) }, ...states.map((one) => element("option", { value: one, selected: one === state }, one)));
      children.push(element("span", { class: "field item-state" }, select));
    }
    this.head.replaceChildren(...children);
    this.costs.replaceChildren(...(tokens.length ? LEVELS.map((label, level) => element("div", {}, element("dt", {}, `L${level} ${label}`), element("dd", {}, tokens[level] ? `${tokens[level].toLocaleString("en")} tokens` : "nothing"))) : []));
  }

  choose(part) {
    this.part = part;
    for (const tab of this.tabs) {
      const isChosen = tab.id === `item-tab-${part}`;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `item-tab-${part}`);
    this.showPart();
  }

  onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = this.parts.findIndex(([part]) => part === this.part);
    const next = (at + step + this.parts.length) % this.parts.length;
    this.choose(this.parts[next][0]);
    this.tabs[next].focus();
  }

  showPart() {
    this.editor?.end();
    this.editor = null;
    if (this.part === "audit") return void this.showAudit();
    if (this.part === "edit") {
      this.editor = new SkillEditor(this.item, (key) => this.onSaved(key));
      return this.panel.replaceChildren(this.editor.root);
    }
    if (!this.found) return;
    const blocks = this.part === "overview" ? this.found.blocks : this.found.levels;
    this.panel.replaceChildren(blocks.length ? element("div", { class: "item-blocks" }, ...blocks.map(fromHtml)) : pageState("empty", "Nothing", "A model gets nothing of it."));
  }

  onSaved(key) {
    if (key === this.item.key) void this.load();
    this.onChange(key);
  }

  async showAudit() {
    const current = ++this.loads;
    this.panel.replaceChildren(pageState("loading", "Reading its files…"));
    try {
      const { blocks } = await getJson(`/api/library/audit?${this.query}`);
      if (current === this.loads) this.panel.replaceChildren(element("div", { class: "item-blocks" }, ...blocks.map(fromHtml)));
    } catch (error) {
      if (current === this.loads) this.panel.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
  }

  async setState(state) {
    try {
      const { text } = await postJson("/api/library/state", { kind: this.item.kind, key: this.item.key, state });
      showHint(text);
      this.onChange();
    } catch (error) {
      showHint([error.problem, error.fix].filter(Boolean).join(": "));
    }
    void this.load();
  }
}
