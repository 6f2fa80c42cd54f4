// Questions of a chat: approvals, choices, texts. The server renders a form; this sends what the user chose.

import { postJson } from "./api.js";
import { element, fromHtml, showHint } from "./dom.js";

const TEXT_FIELDS = "input:not([type=checkbox]), textarea, select";
const DEAF_MILLISECONDS = 400; // keys meant for something else don't answer a question that has just appeared

export class Questions {
  /** `onDone` is called when the user has answered and no question is left. */
  constructor(client, onDone) {
    this.client = client;
    this.onDone = onDone;
    this.shown = new Map();
    this.root = element("div", { class: "questions", "aria-live": "assertive" });
  }

  /** Shows these questions; those that are shown already keep what was typed. */
  set(questions) {
    const wanted = new Set(questions.map(({ id }) => id));
    const hadFocus = this.root.contains(document.activeElement);
    for (const [id, form] of this.shown) {
      if (wanted.has(id)) continue;
      form.remove();
      this.shown.delete(id);
    }
    for (const { id, html } of questions) if (!this.shown.has(id)) this.add(id, fromHtml(html));
    if (hadFocus && !this.shown.size) this.onDone();
  }

  add(id, form) {
    const since = performance.now();
    form.addEventListener("submit", (event) => this.onSubmit(event, id, form));
    form.addEventListener("click", (event) => this.onClick(event, id, form));
    form.addEventListener("keydown", (event) => {
      if (performance.now() - since < DEAF_MILLISECONDS) event.preventDefault();
      else this.onKey(event, id, form);
    });
    this.root.append(form);
    this.shown.set(id, form);
    if (this.shown.size === 1 && !isTyping()) focusOn(form);
  }

  onClick(event, id, form) {
    const button = event.target.closest("button");
    if (button?.name === "cancel") void this.answer(id, form, { is_canceled: true });
    else if (button?.name === "key") void this.answer(id, form, { keys: [button.value] });
  }

  onSubmit(event, id, form) {
    event.preventDefault();
    const data = new FormData(form);
    void this.answer(id, form, { keys: data.getAll("key").map(String), text: String(data.get("text") ?? "") });
  }

  onKey(event, id, form) {
    if (event.key === "Escape") {
      event.preventDefault();
      void this.answer(id, form, { is_canceled: true });
    }
    if (event.target.matches?.(TEXT_FIELDS) || event.ctrlKey || event.metaKey || event.altKey) return;
    const choice = [...form.querySelectorAll("[name=key]")].find((one) => one.value === event.key);
    if (choice) {
      event.preventDefault();
      choice.click();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      moveFocus(form, event.key === "ArrowDown" ? 1 : -1);
    }
  }

  async answer(id, form, answer) {
    for (const control of form.elements) control.disabled = true;
    try {
      await postJson(`/api/chats/${this.chat}/answers`, { question: id, client: this.client, ...answer });
      if ([...this.shown.keys()].every((one) => one === id)) this.onDone(); // the next question may be here already
    } catch (error) {
      for (const control of form.elements) control.disabled = false;
      showHint(error.problem);
    }
  }
}

/** Whether the focus is in a field with a text: it stays there. */
function isTyping() {
  const focused = document.activeElement;
  return Boolean(focused?.matches?.(TEXT_FIELDS) && focused.value);
}

/** The default, or a text field if that is all there is. Otherwise the form, so that Enter chooses nothing. */
function focusOn(form) {
  form.tabIndex = -1;
  const field = form.querySelector("[name=key]") ? null : form.querySelector(TEXT_FIELDS);
  (form.querySelector("[data-default]") ?? field ?? form).focus();
}

function moveFocus(form, step) {
  const choices = [...form.querySelectorAll("[name=key]")];
  const at = choices.indexOf(document.activeElement);
  choices[(at + step + choices.length) % choices.length]?.focus();
}
