// One task: what it was asked, its transcript, its output and its context; messages to it, stop and resume.

import { getJson, postJson } from "./api.js";
import { element, fromHtml, pageState, showHint } from "./dom.js";
import { TaskQuestions } from "./task_questions.js";
import { badgeClass, duration, figures } from "./task_tree.js";

const PARTS = [
  ["overview", "Overview"],
  ["transcript", "Transcript"],
  ["output", "Output"],
  ["context", "Context"],
];
const MIN_INTERVAL = 700;
const BLOCKS = 200;

export class TaskDetail {
  constructor(id) {
    this.id = id;
    this.url = `/api/tasks/${encodeURIComponent(id)}`;
    this.part = "overview";
    this.limit = BLOCKS;
    this.version = "";
    this.shown = [];
    this.loads = 0;
    this.timer = 0;
    this.build();
    void this.load();
  }

  build() {
    this.questions = new TaskQuestions();
    this.title = element("h2", { class: "task-title" }, "Task");
    this.badge = element("span", { class: "badge", role: "status" });
    this.figures = element("span", { class: "task-figures" });
    this.stopButton = element("button", { type: "button", class: "button danger", hidden: true, onclick: () => this.act("stop") }, "Stop");
    this.input = element("input", { type: "text", class: "field", "aria-label": "Message to the task" });
    this.sendButton = element("button", { type: "submit", class: "button primary" }, "Send");
    this.form = element("form", { class: "toolbar task-message", hidden: true, onsubmit: (event) => this.onSubmit(event) }, this.input, this.sendButton);
    this.tabs = PARTS.map(([part, label]) =>
      element("button", { type: "button", role: "tab", id: `task-tab-${part}`, "aria-controls": "task-panel", "aria-selected": String(part === this.part), onclick: () => this.choose(part), onkeydown: (event) => this.onTabKey(event) }, label),
    );
    this.panel = element("div", { class: "task-panel", role: "tabpanel", id: "task-panel", tabindex: "0", "aria-labelledby": "task-tab-overview" }, pageState("loading", "Loading…"));
    this.root = element(
      "section",
      { class: "card task-detail", "aria-label": "Task" },
      element("div", { class: "toolbar" }, element("a", { class: "button ghost task-back", href: "/tasks", "aria-label": "All tasks" }, "← Tasks"), this.title, this.badge, this.figures, this.stopButton),
      this.form,
      this.questions.root,
      element("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the task" }, ...this.tabs),
      this.panel,
    );
  }

  end() {
    clearTimeout(this.timer);
    this.loads += 1;
  }

  /** What the tree knows of it: figures, and whether the shown part has changed. */
  setTask(task) {
    if (!task || task === this.task) return;
    this.task = task;
    this.title.textContent = task.name;
    this.title.title = task.id;
    this.badge.textContent = task.label;
    this.badge.className = badgeClass(task.tone);
    this.figures.textContent = [figures(task), duration(task)].filter(Boolean).join(" · ");
    this.stopButton.hidden = task.is_finished;
    const canSend = !task.is_finished && !task.is_command;
    this.form.hidden = !canSend && !task.is_resumable;
    this.input.placeholder = canSend ? "Steer it: a message that it gets after its running tool calls" : "What to do next (optional)";
    this.sendButton.textContent = canSend ? "Send" : "Resume";
    const version = `${task.status} ${task.version} ${task.turns}`;
    if (version !== this.version) this.refreshSoon();
    this.version = version;
  }

  refreshSoon() {
    if (!this.timer && this.isLoaded) {
      this.timer = setTimeout(() => {
        this.timer = 0;
        void this.load();
      }, MIN_INTERVAL);
    }
  }

  choose(part) {
    this.part = part;
    this.limit = BLOCKS;
    this.shown = [];
    for (const tab of this.tabs) {
      const isChosen = tab.id === `task-tab-${part}`;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `task-tab-${part}`);
    this.panel.replaceChildren(pageState("loading", "Loading…"));
    void this.load();
  }

  onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = PARTS.findIndex(([part]) => part === this.part);
    const next = (at + step + PARTS.length) % PARTS.length;
    this.choose(PARTS[next][0]);
    this.tabs[next].focus();
  }

  async load() {
    const current = ++this.loads;
    try {
      if (this.part === "output") await this.loadOutput(current);
      else await this.loadBlocks(current);
    } catch (error) {
      if (current !== this.loads) return;
      this.shown = [];
      this.panel.replaceChildren(pageState("error", error.problem ?? String(error), error.fix ?? ""));
    }
    this.isLoaded = true;
  }

  async loadBlocks(current) {
    const found = await getJson(`${this.url}/${this.part}?limit=${this.limit}`);
    if (current !== this.loads) return;
    const earlier = element("button", { type: "button", class: "button ghost", onclick: () => this.showEarlier() }, `Show earlier (${found.omitted.toLocaleString("en")})`);
    this.show(found.blocks, found.omitted ? earlier : null, null);
  }

  showEarlier() {
    this.limit *= 4;
    this.shown = [];
    void this.load();
  }

  /** Pages that are complete stay; the last one is read again, since it may have grown. */
  async loadOutput(current) {
    this.pages = this.shown.length ? this.pages : [{ offset: 0, html: "" }];
    const last = this.pages.at(-1);
    const found = await getJson(`${this.url}/output?offset=${last.offset}`);
    if (current !== this.loads) return;
    last.html = found.html;
    const next = () => {
      this.pages.push({ offset: found.next, html: "" });
      void this.load();
    };
    const more = found.next ? element("button", { type: "button", class: "button", onclick: next }, "Show more") : null;
    const blocks = this.pages.map((page) => page.html).filter(Boolean);
    if (blocks.length) this.show(blocks, null, more);
    else this.panel.replaceChildren(pageState("empty", "No output yet"));
  }

  /** Replaces the blocks that changed, so that what the user opened stays open. */
  show(blocks, before, after) {
    if (!this.shown.length || !this.list?.isConnected) {
      this.shown = [];
      this.list = element("div", { class: "task-blocks" });
      this.panel.replaceChildren(...[before, this.list, after].filter(Boolean));
    } else if (this.panel.lastElementChild !== this.list || after) {
      this.panel.replaceChildren(...[before, this.list, after].filter(Boolean));
    }
    blocks.forEach((html, at) => {
      if (this.shown[at] === html) return;
      const block = fromHtml(html);
      if (this.list.children[at]) this.list.children[at].replaceWith(block);
      else this.list.append(block);
    });
    while (this.list.children.length > blocks.length) this.list.lastElementChild.remove();
    this.shown = blocks;
    if (!blocks.length) this.panel.replaceChildren(pageState("empty", "Nothing yet"));
  }

  onSubmit(event) {
    event.preventDefault();
    void this.act(this.task.is_finished ? "resume" : "messages");
  }

  async act(action) {
    const text = action === "stop" ? "" : this.input.value;
    const buttons = [this.stopButton, this.sendButton];
    for (const button of buttons) button.disabled = true;
    try {
      const found = await postJson(`${this.url}/${action}`, { text });
      if (action !== "stop") this.input.value = "";
      showHint(found.text);
      void this.load();
    } catch (error) {
      showHint(error.fix ? `${error.problem}: ${error.fix}` : error.problem);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }
}
