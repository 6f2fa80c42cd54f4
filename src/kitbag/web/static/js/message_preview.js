// What would be sent with the message that is being typed: a line below it, and the pieces when it is opened.

import { postJson } from "./api.js";
import { debounce, element } from "./dom.js";
import { number } from "./tables.js";

const MIN_LENGTH = 4;
const MAX_SKILLS = 6;

export class MessagePreview {
  constructor() {
    this.requests = 0;
    this.summary = element("summary", {});
    this.list = element("ul", {});
    this.root = element("details", { class: "message-preview", hidden: true }, this.summary, this.list);
    this.request = debounce((text) => void this.load(text), 350);
  }

  update(text) {
    this.requests += 1;
    if (text.trim().length < MIN_LENGTH) this.root.hidden = true;
    this.request(text); // also a short one: it takes the place of what was typed before
  }

  async load(text) {
    if (text.trim().length < MIN_LENGTH) return;
    const current = ++this.requests;
    let found;
    try {
      found = await postJson(`/api/chats/${this.chat}/preview`, { text });
    } catch {
      found = {};
    }
    if (current !== this.requests || !found.added?.length) return;
    const names = found.added.filter((piece) => piece.kind !== "user" && piece.name).map((piece) => piece.name);
    this.summary.textContent = [`+${number(found.tokens_added)} tokens`, `${number(found.tokens)} of ${number(found.window)}`, ...names].join(" · ");
    this.list.replaceChildren(
      ...found.added.map((piece) => row(`${piece.kind}${piece.name ? ` ${piece.name}` : ""}`, `${number(piece.tokens)} tokens, ${piece.reason}`)),
      ...found.skills.slice(0, MAX_SKILLS).map((skill) => row(`${skill.name}: ${skill.outcome}`, skill.rule)),
    );
    this.root.hidden = false;
  }
}

function row(label, detail) {
  return element("li", {}, element("span", {}, label), " ", element("span", { class: "dim" }, detail));
}
