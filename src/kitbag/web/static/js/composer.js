// The input of a chat: text, pasted images, completions, and the keys of the terminal.

import { postJson } from "./api.js";
import { debounce, element, showHint } from "./dom.js";
import { MessagePreview } from "./message_preview.js";

const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGE_BYTES = 8 * 1024 * 1024;
const MAX_COMPLETED_CHARACTERS = 10000;

export class Composer {
  /** `toggleDetails()` expands or collapses tool results and thinking; `onSend()` is called for each message. */
  constructor(client, { toggleDetails, onSend }) {
    this.onSend = onSend;
    this.client = client;
    this.toggleDetails = toggleDetails;
    this.images = [];
    this.isWorking = false;
    this.history = [];
    this.historyAt = 0;
    this.warnedText = "";
    this.completions = [];
    this.marked = -1;
    this.preview = new MessagePreview();
    this.build();
    this.complete = debounce(() => void this.requestCompletions(), 60);
  }

  build() {
    this.input = element("textarea", {
      rows: "1",
      placeholder: "Message, /command or @file",
      "aria-label": "Message",
      "aria-autocomplete": "list",
      "aria-controls": "completions",
      "aria-expanded": "false",
      role: "combobox",
      onkeydown: (event) => this.onKey(event),
      oninput: () => this.onInput(),
      onpaste: (event) => this.onPaste(event),
      onblur: () => setTimeout(() => this.closeMenu(), 150),
    });
    this.menu = element("ul", { class: "completions", id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
    this.attachments = element("div", { class: "attachments" });
    this.files = element("input", { type: "file", accept: IMAGE_TYPES.join(), multiple: true, hidden: true, onchange: () => this.attachAll(this.files.files) });
    const attach = element("button", { type: "button", class: "button ghost", title: "Attach images; you can also paste or drop them", onclick: () => this.files.click() }, "Attach");
    this.detailsButton = element("button", { type: "button", class: "button ghost details-toggle", onclick: () => this.toggleDetails() });
    this.showDetailsState(false);
    this.sendButton = element("button", { type: "submit", class: "button primary" }, "Send");
    this.queueButton = element("button", { type: "button", class: "button", hidden: true, title: "Send after the current work (Alt+Enter)", onclick: () => void this.send(true) }, "Queue");
    this.stopButton = element("button", { type: "button", class: "button danger", hidden: true, title: "Stop (Esc)", onclick: () => this.press("cancel") }, "Stop");
    this.root = element(
      "form",
      { class: "composer", onsubmit: (event) => this.onSubmit(event) },
      this.menu,
      this.attachments,
      this.input,
      this.preview.root,
      this.files,
      element("div", { class: "composer-actions" }, attach, this.detailsButton, element("span", { class: "space" }), this.stopButton, this.queueButton, this.sendButton),
    );
  }

  focus() {
    this.input.focus();
  }

  setWorking(isWorking) {
    this.isWorking = isWorking;
    this.root.classList.toggle("working", isWorking);
    this.stopButton.hidden = !isWorking;
    this.queueButton.hidden = !isWorking;
    this.sendButton.textContent = isWorking ? "Steer" : "Send";
    this.sendButton.title = isWorking ? "Delivered after the running tool calls (Enter)" : "Send (Enter)";
  }

  showDetailsState(isOpen) {
    this.detailsButton.textContent = isOpen ? "Collapse all" : "Expand all";
    this.detailsButton.title = `${isOpen ? "Collapse" : "Expand"} tool results and thinking (Ctrl+O)`;
  }

  insert(text, images = []) {
    this.input.value = this.input.value ? `${text}\n${this.input.value}` : text;
    this.images.unshift(...images.map((image) => ({ ...image, url: `data:${image.media_type};base64,${image.data}` })));
    this.showAttachments();
    this.grow();
    this.focus();
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, innerHeight * 0.4)}px`;
  }

  onInput() {
    this.grow();
    this.preview.update(this.isWorking ? "" : this.input.value);
    this.complete();
  }

  onSubmit(event) {
    event.preventDefault();
    void this.send(false);
  }

  onKey(event) {
    if (event.isComposing) return;
    const isMenuOpen = !this.menu.hidden;
    if (isMenuOpen && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      this.mark(this.marked + (event.key === "ArrowDown" ? 1 : -1));
    } else if (isMenuOpen && (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && this.marked >= 0 && !this.isTyped(this.marked)))) {
      event.preventDefault();
      this.accept(Math.max(this.marked, 0));
    } else if (isMenuOpen && event.key === "Escape") {
      event.preventDefault();
      this.closeMenu();
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void this.send(event.altKey);
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.press("cancel");
    } else if (event.key === "ArrowUp" && !this.input.value && this.isWorking) {
      event.preventDefault();
      this.press("unqueue");
    } else if (["ArrowUp", "ArrowDown"].includes(event.key) && this.isRecalling()) {
      event.preventDefault();
      this.recall(event.key === "ArrowUp" ? -1 : 1);
    } else if (event.key === "o" && event.ctrlKey) {
      event.preventDefault();
      this.toggleDetails();
    } else if (event.key === "b" && event.ctrlKey && this.isWorking) {
      event.preventDefault();
      this.press("background");
    }
  }

  /** Whether the input is empty or an earlier message that was not edited. */
  isRecalling() {
    return this.input.value === (this.history[this.historyAt] ?? "");
  }

  recall(step) {
    this.historyAt = Math.max(0, Math.min(this.history.length, this.historyAt + step));
    this.input.value = this.history[this.historyAt] ?? "";
    this.grow();
  }

  async press(key) {
    try {
      await postJson(`/api/chats/${this.chat}/keys`, { key, client: this.client });
    } catch (error) {
      showHint(error.problem);
    }
  }

  async send(waits) {
    const text = this.input.value;
    if (!text.trim() && !this.images.length) return;
    this.closeMenu();
    if (text.includes("@") && text !== this.warnedText && (await this.warnsOfMissing(text))) return;
    const images = this.images.map(({ media_type, data }) => ({ media_type, data }));
    this.sendButton.disabled = true;
    this.onSend();
    this.input.value = ""; // at once: a question that follows gets the focus unless the user types on
    this.grow();
    try {
      await postJson(`/api/chats/${this.chat}/messages`, { text, client: this.client, images, waits });
    } catch (error) {
      showHint([error.problem, error.fix].filter(Boolean).join(": "));
      this.insert(text);
      return;
    } finally {
      this.sendButton.disabled = false;
    }
    this.history.push(text);
    this.historyAt = this.history.length;
    this.warnedText = "";
    this.images = [];
    this.showAttachments();
    this.preview.update("");
  }

  async warnsOfMissing(text) {
    try {
      const { missing } = await postJson(`/api/chats/${this.chat}/mentions`, { text });
      if (!missing.length) return false;
      this.warnedText = text;
      showHint(`no file or agent matches ${missing.join(", ")}; send again to send it as text`);
      return true;
    } catch {
      return false;
    }
  }

  async requestCompletions() {
    const typed = this.input.value.slice(0, this.input.selectionStart);
    if (typed.length > MAX_COMPLETED_CHARACTERS) return this.closeMenu();
    if (!/(^\/[^\n]*$)|(@\S*$)|(@["'][^"'\n]*$)/.test(typed)) return this.closeMenu();
    let found;
    try {
      found = await postJson(`/api/chats/${this.chat}/completions`, { text: typed });
    } catch {
      return this.closeMenu();
    }
    if (typed !== this.input.value.slice(0, this.input.selectionStart)) return;
    const isDone = found.completions.length === 1 && typed.endsWith(found.completions[0].text);
    this.completions = isDone ? [] : found.completions;
    this.showMenu();
  }

  showMenu() {
    this.menu.hidden = !this.completions.length;
    this.input.setAttribute("aria-expanded", String(!this.menu.hidden));
    this.menu.replaceChildren(
      ...this.completions.map((one, at) =>
        element(
          "li",
          { role: "option", id: `completion-${at}`, onmousedown: (event) => (event.preventDefault(), this.accept(at)) },
          element("span", { class: "completion-label" }, one.label || one.text),
          element("span", { class: "completion-description" }, one.description),
        ),
      ),
    );
    this.marked = -1;
    if (this.completions.length) this.mark(0);
  }

  mark(at) {
    this.marked = (at + this.completions.length) % this.completions.length;
    [...this.menu.children].forEach((option, index) => {
      option.setAttribute("aria-selected", String(index === this.marked));
      if (index === this.marked) option.scrollIntoView({ block: "nearest" });
    });
    this.input.setAttribute("aria-activedescendant", `completion-${this.marked}`);
  }

  /** Whether the completion is there already, so that Enter sends. */
  isTyped(at) {
    const { text, start } = this.completions[at];
    const cursor = this.input.selectionStart;
    return this.input.value.slice(cursor + start, cursor) === text;
  }

  accept(at) {
    const { text, start } = this.completions[at];
    const cursor = this.input.selectionStart;
    const value = this.input.value;
    const before = value.slice(0, cursor + start) + text;
    const space = text.endsWith("/") ? "" : " ";
    this.input.value = before + space + value.slice(cursor).replace(/^ /, "");
    this.input.selectionStart = this.input.selectionEnd = before.length + space.length;
    this.closeMenu();
    this.grow();
    if (!space) this.complete();
  }

  closeMenu() {
    this.menu.hidden = true;
    this.marked = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  onPaste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.some((file) => IMAGE_TYPES.includes(file.type))) return;
    event.preventDefault();
    this.attachAll(files);
  }

  /** Attaches images that are dropped on `area`. */
  acceptDrops(area) {
    const mark = (isOver) => area.classList.toggle("drop-target", isOver);
    area.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      mark(true);
    });
    area.addEventListener("dragleave", (event) => mark(area.contains(event.relatedTarget)));
    area.addEventListener("drop", (event) => {
      mark(false);
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.attachAll(event.dataTransfer.files);
    });
  }

  attachAll(files) {
    for (const file of files) {
      if (IMAGE_TYPES.includes(file.type)) void this.attach(file);
      else showHint(`${file.name} is no PNG, JPEG, GIF or WebP image; mention a file of the workspace with @`);
    }
    this.files.value = "";
    this.focus();
  }

  async attach(file) {
    if (file.size > MAX_IMAGE_BYTES) return showHint("the image is larger than 8 MB");
    const url = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.addEventListener("load", () => resolve(reader.result));
      reader.addEventListener("error", () => reject(reader.error));
      reader.readAsDataURL(file);
    });
    this.images.push({ media_type: file.type, data: url.slice(url.indexOf(",") + 1), url });
    this.showAttachments();
  }

  showAttachments() {
    this.attachments.replaceChildren(
      ...this.images.map((image, at) =>
        element(
          "span",
          { class: "attachment" },
          element("img", { src: image.url, alt: `image ${at + 1}` }),
          element("button", { type: "button", class: "button ghost", "aria-label": `Remove image ${at + 1}`, onclick: () => this.removeImage(at) }, "×"),
        ),
      ),
    );
  }

  removeImage(at) {
    this.images.splice(at, 1);
    this.showAttachments();
  }
}
