// The tasks of all agents: a live tree, the approvals that wait, and one task in detail.

import { follow } from "./connection.js";
import { debounce, element, pageState } from "./dom.js";
import { loadStyle } from "./styles.js";
import { number, table } from "./tables.js";
import { TaskDetail } from "./task_detail.js";
import { TaskTree } from "./task_tree.js";

const EMPTY_TEXT = "Subagents and background commands appear here while agents work. Start one in a terminal: kitbag agents run Explore “What is this?” --background";

export async function show(root, context) {
  await loadStyle("/static/css/tasks.css");
  const view = new TaskView(root, context.parameters[0] ?? "");
  return () => view.end();
}

class TaskView {
  constructor(root, selected) {
    this.tasks = new Map();
    this.listing = null;
    this.selected = selected;
    this.waiting = [];
    this.frame = 0;
    this.build(root);
    this.timer = setInterval(() => this.tree.tick(), 1000);
    this.stop = follow("tasks", (event) => this.receive(event));
  }

  build(root) {
    const update = () => this.draw();
    this.search = element("input", { type: "search", class: "search", placeholder: "Filter tasks", "aria-label": "Filter tasks", oninput: debounce(update, 100) });
    this.unfinished = element("input", { type: "checkbox", onchange: update });
    this.everywhere = element("input", { type: "checkbox", onchange: update });
    this.count = element("span", { class: "task-count", role: "status" });
    this.notice = element("div", { class: "task-notice", role: "alert" });
    this.asking = element("section", { class: "card task-asking", "aria-label": "Waiting for you", "aria-live": "polite", hidden: true });
    this.fleet = element("section", { class: "card task-fleet", "aria-label": "Fleet", hidden: true });
    this.tree = new TaskTree(this.selected);
    this.state = element("div", {});
    this.detail = this.selected ? new TaskDetail(this.selected) : null;
    root.classList.toggle("has-detail", Boolean(this.selected));
    root.append(
      element(
        "div",
        { class: "page task-page" },
        element(
          "div",
          { class: "toolbar task-toolbar" },
          element("h1", {}, "Tasks"),
          this.count,
          this.search,
          element("label", { class: "checkbox" }, this.unfinished, "Unfinished"),
          element("label", { class: "checkbox" }, this.everywhere, "All directories"),
        ),
        this.notice,
        this.asking,
        this.fleet,
        element("div", { class: "task-columns" }, element("section", { class: "task-list", "aria-label": "Tasks" }, this.state, this.tree.root), this.detail?.root),
      ),
    );
    this.state.append(pageState("loading", "Loading…"));
  }

  end() {
    this.stop();
    clearInterval(this.timer);
    cancelAnimationFrame(this.frame);
    this.detail?.end();
  }

  receive(event) {
    if (event.kind === "reset") {
      this.tasks.clear();
      this.listing = null;
    } else if (event.kind.startsWith("task/")) {
      this.tasks.set(event.id, event);
    } else if (event.kind === "listing") {
      this.listing = event;
    } else if (event.kind === "questions") {
      this.waiting = event.questions;
    } else if (event.kind === "fleet") {
      this.showFleet(event);
    } else if (event.kind === "problem") {
      this.notice.textContent = event.problem ? `${event.problem}${event.fix ? `. ${event.fix}` : ""}` : "";
    }
    this.draw();
  }

  /** Once per frame, however many tasks changed. */
  draw() {
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.drawNow();
      });
    }
  }

  drawNow() {
    if (!this.listing) return;
    const tasks = this.listing.ids.map((id) => this.tasks.get(id)).filter(Boolean);
    const inScope = this.everywhere.checked ? tasks : tasks.filter((task) => task.directory === this.listing.directory || task.id === this.selected);
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (task) => !(this.unfinished.checked && task.is_finished) && words.every((word) => `${task.id} ${task.name} ${task.about} ${task.label}`.toLowerCase().includes(word));
    const asking = new Map();
    for (const { task } of this.waiting) asking.set(task, (asking.get(task) ?? 0) + 1);
    const shown = this.tree.draw(inScope, { matches, sessions: this.listing.sessions, asking });
    this.showState(tasks.length, inScope, shown);
    this.showWaiting();
    this.detail?.setTask(this.tasks.get(this.selected));
    this.detail?.questions.draw(this.waiting, this.selected, this.tasks);
  }

  /** What tasks ask, with links to where it is answered. */
  showWaiting() {
    const key = JSON.stringify([this.selected, this.waiting.map(({ id }) => id)]);
    if (key === this.askingKey) return;
    this.askingKey = key;
    this.asking.hidden = !this.waiting.length || Boolean(this.selected);
    const items = this.waiting.map(({ task, summary }) =>
      element("li", {}, element("a", { class: "task-question", href: `/tasks/${encodeURIComponent(task)}` }, element("span", { class: "task-name" }, this.tasks.get(task)?.name ?? task), element("code", {}, summary), element("span", { class: "button" }, "Answer"))),
    );
    this.asking.replaceChildren(element("h2", {}, items.length === 1 ? "One task waits for your answer" : `${items.length} tasks wait for your answer`), element("ul", {}, ...items));
  }

  /** Workers and queues, where several machines share them. */
  showFleet({ workers, queues }) {
    this.fleet.hidden = !workers || Boolean(this.selected);
    if (this.fleet.hidden) return;
    const workerRows = workers.map((one) => [one.id, `${one.running} of ${one.concurrency}`, one.queues.join(", "), one.providers.join(", "), one.version, one.is_draining ? "draining" : ""]);
    const queueRows = queues.map((one) => [one.name, number(one.queued), one.oldest, number(one.scheduled), number(one.running), number(one.waiting), number(one.last_minute), number(one.ended), number(one.failed), one.waits_for]);
    this.fleet.replaceChildren(
      workers.length
        ? table("Workers", ["Worker", "Running", "Queues", "Keys for", "Version", "State"], workerRows, [])
        : element("p", {}, "No workers are running; start one with ", element("code", {}, "kitbag worker"), "."),
      table("Queues", ["Queue", "Queued", "Oldest", "Scheduled", "Running", "Need approval", "Ended, 1 min", "Ended, 1 h", "Failed, 1 h", "Oldest waits for"], queueRows, [1, 3, 4, 5, 6, 7, 8]),
    );
  }

  showState(total, inScope, shown) {
    const running = inScope.filter((task) => !task.is_finished).length;
    const omitted = this.listing.omitted ? `, ${this.listing.omitted.toLocaleString("en")} older in \`kitbag tasks\`` : "";
    this.count.textContent = inScope.length ? `${inScope.length.toLocaleString("en")} in total, ${running} unfinished${omitted}` : "";
    if (shown) return this.state.replaceChildren();
    if (inScope.length) return this.state.replaceChildren(pageState("empty", "No task matches", "Change the filter above."));
    const elsewhere = total ? ` ${total.toLocaleString("en")} in other directories.` : "";
    this.state.replaceChildren(pageState("empty", "No tasks in this directory yet", EMPTY_TEXT + elsewhere));
  }
}
