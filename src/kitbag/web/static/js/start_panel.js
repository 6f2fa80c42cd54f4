// What a new chat starts with: persona, model and mode. Choosing one runs the chat's own command, which says what changes.

import { postJson } from "./api.js";
import { element, showHint } from "./dom.js";

const CHOICES = [
  { label: "Persona", command: "persona" },
  { label: "Model", command: "model" },
  { label: "Mode", command: "mode" },
];

export class StartPanel {
  constructor(chat, client) {
    this.chat = chat;
    this.client = client;
    this.root = element("div", { class: "start-panel", hidden: true, role: "group", "aria-label": "Start with" });
  }

  async open() {
    const lists = await Promise.all(CHOICES.map(({ command }) => this.choices(command)));
    const fields = CHOICES.map((choice, at) => this.field(choice, lists[at])).filter(Boolean);
    this.root.replaceChildren(...fields);
    this.root.hidden = !fields.length;
  }

  close() {
    this.root.hidden = true;
  }

  async choices(command) {
    try {
      return (await postJson(`/api/chats/${this.chat}/completions`, { text: `/${command} ` })).completions;
    } catch {
      return [];
    }
  }

  field({ label, command }, choices) {
    if (choices.length < 2) return null;
    const options = choices.map(({ text, description }) => element("option", { value: text, title: description }, text));
    const select = element("select", { onchange: () => this.choose(command, select) }, element("option", { value: "" }, "default"), ...options);
    return element("label", { class: "field start-choice" }, label, select);
  }

  async choose(command, select) {
    if (!select.value) return;
    try {
      await postJson(`/api/chats/${this.chat}/messages`, { text: `/${command} ${select.value}`, client: this.client });
    } catch (error) {
      showHint(error.problem);
    }
  }
}
