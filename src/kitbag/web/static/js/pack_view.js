// Packs a task for a subagent: the payload, what fills its budgets and what was cut, again at each change.

import { getJson, postJson } from "./api.js";
import { debounce, element, fromHtml, pageState, showHint } from "./dom.js";
import { loadStyle } from "./styles.js";

const EXAMPLE = "# Round prices to cents\n\nThe total of an order is off by a cent. Find out why and fix it in app/billing.py.";
const BUDGETS = ["protocol", "task", "skills", "total", "fill"];

export async function show(root) {
  await loadStyle("/static/css/pack.css");
  const choices = await getJson("/api/pack/choices");
  const view = new PackView(root, choices);
  return () => view.end();
}

class PackView {
  constructor(root, choices) {
    this.choices = choices;
    this.requests = 0;
    this.abort = null;
    this.update = debounce(() => void this.pack(false), 200);
    this.build(root);
  }

  end() {
    this.requests += 1;
    this.abort?.abort();
  }

  build(root) {
    const onInput = () => this.update();
    this.text = element("textarea", { id: "pack-text", rows: "8", placeholder: EXAMPLE, oninput: onInput });
    this.task = element("input", { type: "text", id: "pack-task", list: "pack-tasks", placeholder: this.choices.tasks[0] ?? "SHOP-41 or path/to/task.md", autocomplete: "off", oninput: onInput });
    this.skills = element("input", { type: "text", id: "pack-skills", placeholder: "chosen to match the task", autocomplete: "off", oninput: onInput });
    const addSkill = element("select", { "aria-label": "Add a skill", onchange: (event) => this.addSkill(event) }, element("option", { value: "" }, "Add…"), ...this.choices.skills.map((name) => element("option", { value: name }, name)));
    this.strategy = select("pack-strategy", "chosen by budget", this.choices.strategies, onInput);
    this.output = select("pack-output", "as the agent can", this.choices.outputs, onInput);
    this.agent = select("pack-agent", "none", this.choices.agents, onInput);
    this.variables = element("textarea", { id: "pack-variables", rows: "2", placeholder: "NAME=value, one on each line", oninput: onInput });
    this.budgets = BUDGETS.map((name) => element("input", { type: "number", min: "1", id: `pack-budget-${name}`, placeholder: String(this.choices.budgets[name]), oninput: onInput }));
    this.runButton = element("button", { type: "button", class: "button", title: "Pack once with the commands that your rules allow", onclick: () => void this.pack(true) }, "Run");
    this.result = element("section", { class: "pack-result", "aria-label": "Result", "aria-live": "polite" }, pageState("empty", "Nothing to pack yet", "Write a task, or name an ID or a file. The payload is packed again at each change."));
    const form = element(
      "form",
      { class: "card pack-form", "aria-label": "What to pack", onsubmit: (event) => this.onSubmit(event) },
      field("Task ID or file", this.task, element("datalist", { id: "pack-tasks" }, ...this.choices.tasks.map((id) => element("option", { value: id })))),
      field("Or its text", this.text),
      element("div", { class: "field" }, element("label", { for: "pack-skills" }, "Skills, the primary one first"), element("div", { class: "pack-skills" }, this.skills, addSkill)),
      element(
        "details",
        { class: "pack-options", open: matchMedia("(min-width: 60rem)").matches },
        element("summary", {}, "Options"),
        element(
          "div",
          {},
          element("div", { class: "pack-row" }, field("Strategy", this.strategy), field("Output", this.output)),
          field("For agent", this.agent),
          field("Variables", this.variables),
          element("fieldset", {}, element("legend", {}, "Budgets in tokens; fill in percent"), element("div", { class: "pack-budgets" }, ...BUDGETS.map((name, at) => field(name, this.budgets[at])))),
        ),
      ),
      element("div", { class: "toolbar" }, this.runButton, element("span", { class: "pack-hint" }, "While you type, no command of the task or its skills runs.")),
    );
    root.append(element("div", { class: "page pack-page" }, element("h1", {}, "Pack"), element("div", { class: "pack-columns" }, form, this.result)));
  }

  onSubmit(event) {
    event.preventDefault();
    void this.pack(false);
  }

  addSkill(event) {
    const names = this.skillNames();
    if (event.target.value && !names.includes(event.target.value)) this.skills.value = [...names, event.target.value].join(", ");
    event.target.value = "";
    this.update();
  }

  skillNames() {
    return this.skills.value.split(",").map((name) => name.trim()).filter(Boolean);
  }

  request(runs) {
    const variables = {};
    for (const line of this.variables.value.split("\n")) {
      const at = line.indexOf("=");
      if (at > 0) variables[line.slice(0, at).trim()] = line.slice(at + 1);
    }
    const budgets = {};
    BUDGETS.forEach((name, at) => {
      if (this.budgets[at].value) budgets[name] = Math.trunc(Number(this.budgets[at].value));
    });
    return { task: this.task.value.trim(), text: this.text.value, skills: this.skillNames(), strategy: this.strategy.value || null, output: this.output.value || null, agent: this.agent.value, variables, budgets, runs };
  }

  /** The last request wins: earlier ones are given up. */
  async pack(runs) {
    const current = ++this.requests;
    this.abort?.abort();
    this.abort = new AbortController();
    this.text.disabled = Boolean(this.task.value.trim());
    if (!this.task.value.trim() && !this.text.value.trim()) {
      this.result.replaceChildren(pageState("empty", "Nothing to pack yet", "Write a task, or name an ID or a file."));
      return;
    }
    this.result.classList.add("is-waiting");
    try {
      const found = await postJson("/api/pack/payload", this.request(runs), this.abort.signal);
      if (current === this.requests) this.show(found);
    } catch (error) {
      if (current === this.requests) this.result.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    } finally {
      if (current === this.requests) this.result.classList.remove("is-waiting");
    }
  }

  show(found) {
    const wasOpen = this.result.querySelector(".pack-payload")?.open ?? true;
    const cut = found.tokens_cut ? element("span", { class: "badge badge-warning" }, `${found.tokens_cut.toLocaleString("en")} tokens cut`) : element("span", { class: "badge badge-good" }, "nothing cut");
    const copy = element("button", { type: "button", class: "button", onclick: () => void this.copy(found.text) }, "Copy payload");
    const payload = element("details", { class: "pack-payload" }, element("summary", {}, "Payload"), fromHtml(found.payload));
    payload.open = wasOpen;
    this.result.replaceChildren(
      element("div", { class: "toolbar" }, element("h2", {}, found.title || found.id), element("span", { class: "badge badge-accent" }, `${found.tokens.toLocaleString("en")} tokens`), cut, copy),
      element("div", { class: "pack-budget-bars" }, ...found.budgets.map(budgetBar)),
      element("dl", { class: "fields" }, pair("strategy", `${found.strategy}: ${found.strategy_reason}`), ...found.skills.map((skill, at) => pair(at ? "" : "skills", `${skill.name}: ${skill.reason}`))),
      ...found.warnings.map(fromHtml),
      ...found.parts.map(fromHtml),
      payload,
    );
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      showHint("copied");
    } catch {
      showHint("the browser did not allow copying; select the text instead");
    }
  }
}

function field(label, control, ...more) {
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, ...more);
}

function select(id, first, names, onInput) {
  return element("select", { id, onchange: onInput }, element("option", { value: "" }, first), ...names.map((name) => element("option", { value: name }, name)));
}

function pair(label, text) {
  return element("div", {}, element("dt", {}, label), element("dd", {}, text));
}

function budgetBar({ name, used, limit }) {
  const share = limit ? used / limit : 1;
  const bar = element("meter", { min: "0", max: "1", low: "0.7", high: "0.9", optimum: "0", class: "pack-meter", "aria-label": `${name} budget` });
  bar.value = Math.min(share, 1);
  return element("div", { class: "pack-budget" }, element("span", {}, name), bar, element("span", { class: "pack-figure" }, `${used.toLocaleString("en")} of ${limit.toLocaleString("en")}`));
}
