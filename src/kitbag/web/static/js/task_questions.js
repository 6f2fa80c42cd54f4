// Approvals and questions of background tasks, as in a chat; the first answer from anywhere counts.

import { postJson } from "./api.js";
import { element, showHint } from "./dom.js";
import { Questions } from "./questions.js";

const client = crypto.randomUUID();

/** Approvals and questions of tasks. They never take the focus from somebody who types. */
export class TaskQuestions extends Questions {
  constructor() {
    super("", client);
    this.root.setAttribute("aria-live", "polite");
    this.later = new Set();
    this.reopen = element("button", { type: "button", class: "button task-reopen", onclick: () => this.showAll() });
  }

  /** Those of the selected task and of tasks below it. */
  draw(waiting, selected, tasks) {
    const isBelow = (id) => id === selected || (tasks.get(id)?.parent ? isBelow(tasks.get(id).parent) : false);
    const ours = waiting.filter(({ task }) => isBelow(task));
    const wanted = ours.filter(({ request }) => !this.later.has(request));
    const focused = document.activeElement;
    this.set(wanted);
    for (const { id, task } of wanted) if (task !== selected) this.label(this.shown.get(id), tasks.get(task), task);
    if (focused && focused !== document.body && focused.isConnected) focused.focus();
    const left = ours.length - wanted.length;
    this.reopen.textContent = left === 1 ? "Answer the question that you left for later" : `Answer ${left} questions that you left for later`;
    if (left) this.root.append(this.reopen);
    else this.reopen.remove();
    this.requests = new Map(ours.map(({ id, request }) => [id, request]));
    this.redraw = () => this.draw(waiting, selected, tasks);
  }

  showAll() {
    this.later.clear();
    this.redraw();
  }

  label(form, task, id) {
    if (form.querySelector(".question-task")) return;
    const name = task ? `${task.name} ${id.slice(0, 8)}` : id.slice(0, 8);
    form.prepend(element("a", { class: "question-task", href: `/tasks/${encodeURIComponent(id)}` }, name));
  }

  async answer(id, form, answer) {
    const request = this.requests.get(id);
    for (const control of form.elements) control.disabled = true;
    try {
      const { outcome } = await postJson("/api/tasks/answers", { question: id, client: this.client, ...answer });
      if (outcome === "left") this.later.add(request);
      this.redraw();
    } catch (error) {
      for (const control of form.elements) control.disabled = false;
      showHint(error.problem);
    }
  }
}
