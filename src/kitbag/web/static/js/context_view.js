// The model calls of a session: what each request contained and lacked, what differs, what it cost.

import { getJson, getText } from "./api.js";
import { CallPieces } from "./context_pieces.js";
import { downloadText, element, pageState, setHtml, showHint } from "./dom.js";
import { loadStyle } from "./styles.js";
import { money, number, table } from "./tables.js";

const TABS = [
  ["request", "Request"],
  ["diff", "Difference"],
  ["check", "Check"],
  ["skills", "Skills and savings"],
];
const REFRESH_MILLISECONDS = 1000;
const SIGNS = { added: "+", removed: "−", changed: "~" };

export async function show(root, context) {
  await Promise.all([loadStyle("/static/css/pictures.css"), loadStyle("/static/css/context.css")]);
  const view = new ContextView(root, context);
  await view.load();
  const timer = setInterval(() => void view.refresh(), REFRESH_MILLISECONDS);
  return () => clearInterval(timer);
}

class ContextView {
  constructor(root, context) {
    this.context = context;
    this.name = context.parameters[0] || "-";
    this.path = `/api/context/${encodeURIComponent(this.name)}`;
    this.tab = "request";
    this.requests = 0;
    this.root = element("div", { class: "page context-page" });
    root.append(this.root);
  }

  get width() {
    return Math.max(Math.floor(this.root.clientWidth) - 32, 280);
  }

  async load() {
    this.found = await getJson(`${this.path}?width=${this.width}`);
    const calls = this.found.calls;
    const wanted = Number(this.context.query.get("call"));
    this.number = this.context.query.has("call") && wanted <= calls.length ? wanted : calls.length;
    this.path = `/api/context/${encodeURIComponent(this.found.session)}`;
    this.build();
    await this.showCall();
  }

  /** After new calls of the session. Who looks at the last one sees the new last one; who looks at an earlier one keeps it. */
  async refresh() {
    if (document.hidden || this.isRefreshing) return;
    this.isRefreshing = true;
    try {
      const found = await getJson(`${this.path}?width=${this.width}&seen=${this.found.seq}`);
      if (found.seq === this.found.seq) return;
      const isAtEnd = this.number === 0 || this.number === this.found.calls.length;
      const wasEmpty = !this.found.calls.length;
      this.found = found;
      if (isAtEnd && this.number) this.number = found.calls.length;
      if (wasEmpty) {
        this.number = found.calls.length;
        this.build();
      } else {
        this.fillPicker();
        setHtml(this.chart, found.chart);
      }
      if (isAtEnd || wasEmpty) await this.showCall();
      else this.markCall();
    } catch {
      // The server is away, which the page shows, or the session was deleted; the next time tells.
    } finally {
      this.isRefreshing = false;
    }
  }

  fillPicker() {
    const calls = this.found.calls;
    const options = calls.map((call) => {
      const label = `Call ${call.number} of ${calls.length}${call.kind === "compaction" ? " (compaction)" : ""}, ${call.at.slice(11, 19)}`;
      return element("option", { value: String(call.number) }, label);
    });
    this.picker.replaceChildren(...options, element("option", { value: "0" }, "What would be sent now"));
  }

  build() {
    const calls = this.found.calls;
    this.picker = element("select", { class: "field context-picker", "aria-label": "Call", onchange: () => this.choose(Number(this.picker.value)) });
    this.fillPicker();
    this.tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Parts" });
    this.panel = element("div", { role: "tabpanel", class: "context-panel", tabindex: "-1" });
    this.chart = element("section", { class: "card context-chart", "aria-label": "Tokens and cost by call", onclick: (event) => this.chooseBar(event) });
    setHtml(this.chart, this.found.chart);
    this.root.replaceChildren(
      element(
        "div",
        { class: "toolbar" },
        element("h1", {}, "Context"),
        element("a", { class: "context-session", href: `/chat/${encodeURIComponent(this.found.session)}` }, this.found.about || this.found.session),
      ),
      calls.length ? this.chart : null,
      element(
        "div",
        { class: "toolbar" },
        this.step("‹", "Previous call", -1),
        this.picker,
        this.step("›", "Next call", 1),
        element("span", { class: "context-gap" }),
        element("button", { type: "button", class: "button", onclick: () => void this.export("svg") }, "Save picture"),
        element("button", { type: "button", class: "button", onclick: () => void this.export("html") }, "Save page"),
      ),
      this.tabs,
      this.panel,
    );
    this.drawTabs();
  }

  step(sign, label, by) {
    return element("button", { type: "button", class: "button", "aria-label": label, onclick: () => this.choose((this.number || this.found.calls.length + 1) + by) }, sign);
  }

  drawTabs() {
    this.tabs.replaceChildren(
      ...TABS.map(([key, label]) =>
        element("button", { type: "button", role: "tab", "aria-selected": String(key === this.tab), onclick: () => this.openTab(key) }, label),
      ),
    );
  }

  openTab(key) {
    this.tab = key;
    this.drawTabs();
    void this.showTab();
  }

  choose(wanted) {
    const most = this.found.calls.length;
    this.number = wanted < 1 || wanted > most ? (wanted === 0 || wanted > most ? 0 : Math.min(1, most)) : wanted;
    this.context.replacePath(`/context/${encodeURIComponent(this.found.session)}?call=${this.number}`);
    void this.showCall();
  }

  chooseBar(event) {
    const key = event.target.closest("[data-key]")?.dataset.key;
    if (key) this.choose(Number(key));
  }

  markCall() {
    this.picker.value = String(this.number);
    for (const bar of this.chart.querySelectorAll("[data-key]")) bar.classList.toggle("is-selected", bar.dataset.key === String(this.number));
  }

  async showCall() {
    this.markCall();
    const current = ++this.requests;
    try {
      const call = await getJson(`${this.path}/call?number=${this.number}&width=${this.width}`);
      if (current !== this.requests) return;
      this.call = call;
      await this.showTab();
    } catch (error) {
      if (current === this.requests) this.showProblem(error);
    }
  }

  showProblem(error) {
    this.panel.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
  }

  async showTab() {
    try {
      if (this.tab === "request") this.showRequest();
      else if (this.tab === "diff") await this.showDiff();
      else if (this.tab === "check") this.showCheck();
      else this.showSkills();
    } catch (error) {
      this.showProblem(error);
    }
  }

  showRequest() {
    const pieces = new CallPieces(this.path, this.number, this.call);
    this.panel.replaceChildren(
      element("dl", { class: "context-facts" }, ...this.facts().flatMap(([label, value]) => [element("div", {}, element("dt", {}, label), element("dd", {}, value))])),
      ...this.call.unknown.map((text) => element("p", { class: "context-note" }, text)),
      ...pieces.sections(),
    );
  }

  facts() {
    const call = this.call;
    const facts = [["Estimated", `${number(call.tokens)} tokens`], ["Text", `${number(call.bytes)} bytes`]];
    if (call.counted) {
      facts.push(["Counted by the provider", `${number(call.counted)} (${call.residual >= 0 ? "+" : ""}${number(call.residual)})`]);
      facts.push(["Read from cache", number(call.usage.cache_read)]);
      const row = this.found.calls[this.number - 1];
      if (row?.predicted_cached !== null && row) facts.push(["Predicted", number(row.predicted_cached)]);
      facts.push(["Cost", money(call.cost)]);
    }
    facts.push(["Reproduced", call.is_exact === null ? "not known" : call.is_exact ? "byte for byte" : `all but ${number(Math.abs(call.difference))} bytes`]);
    facts.push(["Model", call.model]);
    return facts;
  }

  async showDiff() {
    const calls = this.found.calls;
    if (!this.number) return this.panel.replaceChildren(pageState("empty", "Choose a call", "What would be sent now has no reply yet."));
    const other = element("select", { class: "field context-picker", "aria-label": "Compare with", onchange: () => void this.drawDiff(Number(other.value)) });
    other.append(element("option", { value: "0" }, "the call before it"));
    for (const call of calls) if (call.number !== this.number) other.append(element("option", { value: String(call.number) }, `call ${call.number}`));
    this.diffBody = element("div", { class: "context-panel" });
    this.panel.replaceChildren(element("div", { class: "toolbar" }, element("span", {}, `Call ${this.number} beside`), other), this.diffBody);
    await this.drawDiff(0);
  }

  async drawDiff(first) {
    const body = this.diffBody;
    let found;
    try {
      found = await getJson(`${this.path}/diff?first=${first}&second=${this.number}`);
    } catch (error) {
      return body.replaceChildren(pageState(error.status === 404 ? "empty" : "error", error.problem ?? String(error), error.fix ?? ""));
    }
    const broken = found.divergence;
    const shared = `${number(found.shared_bytes)} bytes, about ${number(found.shared_tokens)} tokens, are the same`;
    const summary = broken
      ? element(
          "section",
          { class: "card" },
          element("p", {}, element("strong", {}, `First difference at byte ${number(broken.offset)}`), `: byte ${number(broken.within)} of ${broken.kind} ${broken.name}`),
          element("p", {}, `${broken.cause ? `Cause: ${broken.cause}` : "Cause unknown"}. ${shared} before it.`),
          element("pre", { class: "context-excerpt" }, element("span", { class: "removed" }, `− ${broken.before || "(ends here)"}\n`), element("span", { class: "added" }, `+ ${broken.after || "(ends here)"}`)),
        )
      : element("section", { class: "card" }, element("p", {}, `Call ${found.second} continues the earlier one: ${shared}.`));
    if (found.predicted_cached !== null) {
      summary.append(element("p", {}, `Cache: ${number(found.predicted_cached)} tokens predicted, ${number(found.reported_cached)} reported by the provider.`));
    }
    const rows = found.changes.map((change) => [
      SIGNS[change.change],
      change.kind,
      change.name,
      signed(change.tokens_after - change.tokens_before),
      signed(change.bytes_after - change.bytes_before),
      number(change.offset),
    ]);
    body.replaceChildren(summary, rows.length ? table("Pieces that differ", ["", "Kind", "Name", "Tokens", "Bytes", "At byte"], rows, [3, 4, 5]) : "");
  }

  showCheck() {
    const check = this.found.check;
    const rows = check.findings.map((finding) => [
      element("span", { class: `badge ${finding.severity === "problem" ? "badge-bad" : ""}` }, finding.severity),
      finding.call ? element("button", { type: "button", class: "button ghost", onclick: () => this.choose(finding.call) }, `Call ${finding.call}`) : "",
      finding.text,
    ]);
    this.panel.replaceChildren(
      element("section", { class: "card" }, ...check.summary.map((line) => element("p", {}, line)), rows.length ? "" : element("p", {}, "No problems and no cache breaks.")),
      rows.length ? table("Findings", ["", "Call", "Finding"], rows, []) : "",
    );
  }

  showSkills() {
    const skills = this.found.skills.map((skill) => [
      skill.name,
      product(skill.listed_tokens, skill.listed_requests),
      product(skill.tokens, skill.requests),
      number(skill.total_tokens),
      money(skill.cost),
      number(skill.possible_tokens),
    ]);
    const savings = (title, rows) =>
      table(title, ["", "All skills loaded", "Kitbag", "Saved"], rows.map((row) => [row.name, number(row.everything), number(row.used), `${Math.round(row.saved * 100)}%`]), [1, 2, 3]);
    this.panel.replaceChildren(
      element("h2", {}, "Saved by loading skills on demand"),
      element("div", { class: "context-columns" }, savings("Every token of the request", this.found.savings.tokens), savings("1.3 tokens per word: prompt and skills", this.found.savings.words)),
      element("h2", {}, "Cost of each skill"),
      skills.length ? table("Its own bytes times the requests that carried them", ["Skill", "Listed × calls", "Loaded × calls", "Tokens in all", "Cost", "If loaded"], skills, [1, 2, 3, 4, 5]) : pageState("empty", "No skills"),
    );
  }

  async export(format) {
    try {
      const text = await getText(`${this.path}/export?format=${format}&number=${this.number}`);
      downloadText(text, `context-${this.found.session}.${format}`);
    } catch (error) {
      showHint([error.problem ?? String(error), error.fix].filter(Boolean).join(": "));
    }
  }
}

function product(tokens, requests) {
  return requests ? `${number(tokens)} × ${number(requests)}` : "–";
}

function signed(value) {
  return `${value >= 0 ? "+" : "−"}${number(Math.abs(value))}`;
}
