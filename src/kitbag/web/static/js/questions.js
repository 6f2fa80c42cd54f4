// Questions of a chat: approvals, choices, texts. The server renders a form; this sends what the user chose.

import { postJson } from "./api.js";
import { element, fromHtml, showHint } from "./dom.js";

export class Questions {
  constructor(chat, client) {
    this.chat = chat;
    this.client = client;
    this.shown = new Map();
    this.root = element("div", { class: "questions", "aria-live": "assertive" });
  }

  /** Shows these questions; those that are shown already keep what was typed. */
  set(questions) {
    const wanted = new Map(questions.map((question) => [question.id, question]));
    for (const [id, form] of this.shown) {
      if (wanted.has(id)) continue;
      form.remove();
      this.shown.delete(id);
    }
    for (const { id, html } of questions) {
      if (this.shown.has(id)) continue;
      const form = fromHtml(html);
      form.addEventListener("submit", (event) => this.onSubmit(event, id, form));
      form.addEventListener("click", (event) => this.onClick(event, id, form));
      form.addEventListener("keydown", (event) => this.onKey(event, id, form));
      this.root.append(form);
      this.shown.set(id, form);
      form.querySelector("[autofocus]")?.focus();
    }
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
    const isTyping = event.target.matches?.("input[type=text], input[type=password], textarea");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const button = [...form.querySelectorAll("button[name=key]")].find((one) => one.value === event.key);
    if (button) {
      event.preventDefault();
      button.click();
    }
  }

  async answer(id, form, answer) {
    for (const control of form.elements) control.disabled = true;
    try {
      await postJson(`/api/chats/${this.chat}/answers`, { question: id, client: this.client, ...answer });
    } catch (error) {
      for (const control of form.elements) control.disabled = false;
      showHint(error.problem);
    }
  }
}
