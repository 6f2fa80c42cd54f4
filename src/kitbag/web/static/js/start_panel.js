// What a new chat starts with: persona, model and mode. Choosing one runs the chat's own command, which says what changes.

import { postJson } from "./api.js";
import { element, showHint } from "./dom.js";

const CHOICES = [
  { label: "Persona", command: "persona" },
  { label: "Model", command: "model" },
  { label: "Mode", command: "mode" },
];

export class StartPanel {
  constructor(client) {
    this.client = client;
    this.current = {};
    this.root = element("div", { class: "start-panel", hidden: true, role: "group", "aria-label": "Start with" });
  }

  async open() {
    const lists = await Promise.all(CHOICES.map(({ command }) => this.choices(command)));
    const fields = CHOICES.map((choice, at) => this.field(choice, lists[at])).filter(Boolean);
    this.root.replaceChildren(...fields);
    this.showCurrent(this.current);
    this.root.hidden = !fields.length;
  }

  /** Persona, model and mode as they are now. */
  showCurrent(current) {
    this.current = current;
    for (const select of this.root.querySelectorAll("select")) {
      const value = current[select.name] || "none";
      select.options[0].textContent = value;
      select.value = [...select.options].some((option) => option.value === value) ? value : "";
      select.options[0].hidden = Boolean(select.value);
    }
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
    const select = element("select", { name: command, onchange: () => this.choose(command, select) }, element("option", { value: "" }), ...options);
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
