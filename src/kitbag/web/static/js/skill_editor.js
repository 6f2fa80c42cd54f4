// A skill's file, and beside it what the unsaved text would cost, what is wrong with it, and which messages find it.

import { getJson, postJson } from "./api.js";
import { debounce, element, fromHtml, pageState, showHint } from "./dom.js";
import { matchCells } from "./message_trial.js";

const LEVELS = ["Catalog", "Loaded", "Files"];

export class SkillEditor {
  constructor(item, onSaved) {
    this.item = item;
    this.onSaved = onSaved;
    this.requests = 0;
    this.saved = null;
    this.before = null;
    this.root = element("div", { class: "editor" }, pageState("loading", "Loading…"));
    this.storageKey = `kitbag-draft ${item.kind}/${item.key}`;
    void this.open();
  }

  end() {
    this.requests += 1;
  }

  /** What is not saved is kept for this tab, so that leaving the view loses nothing. */
  keep() {
    try {
      if (this.isChanged) sessionStorage.setItem(this.storageKey, JSON.stringify({ version: this.version, text: this.area.value }));
      else sessionStorage.removeItem(this.storageKey);
    } catch {
      // Too large for the browser's storage: it is lost if the user leaves.
    }
  }

  kept() {
    const { version, text } = JSON.parse(sessionStorage.getItem(this.storageKey) ?? "{}");
    return version === this.version ? text : undefined;
  }

  get isChanged() {
    return this.saved !== null && this.area.value !== this.saved;
  }

  async open() {
    const query = new URLSearchParams({ kind: this.item.kind, key: this.item.key });
    try {
      const { text, version } = await getJson(`/api/library/file?${query}`);
      this.version = version;
      this.saved = text;
      this.build(this.kept() ?? text);
      this.before = (await postJson("/api/library/draft", { ...this.item, text })).tokens;
      this.showChanged();
      await this.evaluate();
    } catch (error) {
      this.root.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
  }

  build(text) {
    const evaluate = debounce(() => void this.evaluate(), 200);
    const onInput = () => {
      this.showChanged();
      evaluate();
    };
    this.area = element("textarea", { id: "editor-text", spellcheck: "false", rows: "24", oninput: onInput, onkeydown: (event) => this.onKey(event) });
    this.area.value = text;
    this.saveButton = element("button", { type: "button", class: "button primary", disabled: true, onclick: () => void this.save() }, "Save");
    this.revertButton = element("button", { type: "button", class: "button ghost", disabled: true, onclick: () => this.revert() }, "Revert");
    this.status = element("span", { class: "editor-status", role: "status" });
    this.message = element("input", { type: "text", id: "editor-message", placeholder: "A message that should find it", oninput: evaluate });
    this.costs = element("dl", { class: "editor-costs" });
    this.problems = element("div", { class: "item-blocks", "aria-live": "polite" });
    this.audit = element("div", { class: "item-blocks" });
    this.matches = element("ol", { class: "editor-matches" });
    this.root.replaceChildren(
      element("div", { class: "editor-text field" }, element("label", { for: "editor-text" }, "File"), this.area, element("div", { class: "toolbar" }, this.saveButton, this.revertButton, this.status)),
      element(
        "div",
        { class: "editor-effects" },
        element("h3", {}, "Cost in tokens"),
        this.costs,
        element("h3", {}, "Diagnostics"),
        this.problems,
        this.audit,
        element("div", { class: "field" }, element("label", { for: "editor-message" }, "Which skills does this message get?"), this.message),
        this.matches,
      ),
    );
  }

  onKey(event) {
    if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void this.save();
    }
  }

  showChanged() {
    this.saveButton.disabled = !this.isChanged;
    this.revertButton.disabled = !this.isChanged;
    this.status.textContent = this.isChanged ? "not saved" : "";
    this.keep();
  }

  revert() {
    this.area.value = this.saved;
    this.showChanged();
    void this.evaluate();
  }

  async evaluate() {
    const current = ++this.requests;
    const draft = { ...this.item, text: this.area.value, message: this.message.value };
    try {
      const found = await postJson("/api/library/draft", draft);
      if (current !== this.requests) return;
      this.before ??= found.tokens;
      this.showCosts(found.tokens);
      this.problems.replaceChildren(...found.problems.map(fromHtml));
      this.audit.replaceChildren(...(found.audit.length ? [element("h3", {}, "Audit"), ...found.audit.map(fromHtml)] : []));
      this.matches.replaceChildren(...found.matches.map((match) => element("li", { class: match.is_this ? "is-this" : "" }, ...matchCells(match))));
    } catch (error) {
      if (current === this.requests) this.problems.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
  }

  showCosts(tokens) {
    const parts = LEVELS.map((label, level) => {
      const change = tokens[level] - this.before[level];
      const note = change ? element("span", { class: change > 0 ? "tone-warning" : "tone-good" }, ` ${change > 0 ? "+" : "−"}${Math.abs(change).toLocaleString("en")}`) : null;
      return element("div", {}, element("dt", {}, `L${level} ${label}`), element("dd", {}, tokens[level].toLocaleString("en"), note));
    });
    this.costs.replaceChildren(...parts);
  }

  async save() {
    if (!this.isChanged) return;
    const text = this.area.value;
    this.saveButton.disabled = true;
    this.status.textContent = "saving…";
    try {
      const { version, key, notice } = await postJson("/api/library/save", { ...this.item, text, version: this.version });
      this.version = version;
      this.saved = text;
      this.before = null;
      await this.evaluate();
      this.showChanged();
      this.status.textContent = notice ? `saved. ${notice}` : "saved";
      this.onSaved(key);
    } catch (error) {
      this.showChanged();
      this.status.textContent = [error.problem, error.fix].filter(Boolean).join(": ");
      if (error.status !== 409) showHint(error.problem);
    }
  }
}
