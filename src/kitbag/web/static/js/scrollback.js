// The blocks of a chat. Holds a window of them in the DOM: earlier ones are requested when the user scrolls up, and
// dropped again when the window is long and the user is at its end.

import { getJson } from "./api.js";
import { element, fromHtml, setHtml } from "./dom.js";

const PAGE = 100;
const MAX_BLOCKS = 600;
const NEAR_END = 80;

export class Scrollback {
  constructor(chat) {
    this.chat = chat;
    this.blocks = element("div", { class: "blocks" });
    this.live = element("div", { class: "live" });
    this.earlier = element("button", { type: "button", class: "button ghost earlier", hidden: true, onclick: () => this.loadEarlier() }, "Show earlier messages");
    this.root = element("div", { class: "scrollback", role: "log", "aria-live": "polite", "aria-label": "Conversation", tabindex: "0" }, this.earlier, this.blocks, this.live);
    this.isLoading = false;
    this.isAtEnd = true;
    this.isComplete = true;
    this.isOpen = false;
    this.clocks = [];
    this.root.addEventListener("scroll", () => this.onScroll(), { passive: true });
    new ResizeObserver(() => this.keepAtEnd()).observe(this.root);
  }

  reset(isComplete) {
    this.blocks.replaceChildren();
    this.live.replaceChildren();
    this.isComplete = isComplete;
    this.earlier.hidden = isComplete;
    this.isAtEnd = true;
  }

  add(number, html) {
    const block = fromHtml(html);
    block.dataset.number = number;
    if (this.isOpen) openDetails(block, true);
    this.blocks.append(block);
    if (this.isAtEnd && this.blocks.childElementCount > MAX_BLOCKS) this.dropEarliest();
    this.keepAtEnd();
  }

  dropEarliest() {
    while (this.blocks.childElementCount > MAX_BLOCKS - PAGE) this.blocks.firstElementChild.remove();
    this.isComplete = false;
    this.earlier.hidden = false;
  }

  setLive(html) {
    setHtml(this.live, html);
    const now = performance.now();
    this.clocks = [...this.live.querySelectorAll(".elapsed")].map((clock) => [clock, now - 1000 * clock.dataset.startedAgo]);
    this.keepAtEnd();
  }

  /** Counts on the seconds of what is running; the server sends them only when something else changes. */
  tick() {
    for (const [clock, start] of this.clocks) {
      const seconds = Math.floor((performance.now() - start) / 1000);
      clock.textContent = seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
    }
  }

  setOpen(isOpen) {
    this.isOpen = isOpen;
    openDetails(this.blocks, isOpen);
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.root;
    this.isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    if (scrollTop < 200 && !this.isComplete) void this.loadEarlier();
  }

  keepAtEnd() {
    if (this.isAtEnd) this.root.scrollTop = this.root.scrollHeight;
  }

  async loadEarlier() {
    if (this.isLoading || this.isComplete) return;
    this.isLoading = true;
    try {
      const first = this.blocks.firstElementChild?.dataset.number ?? Number.MAX_SAFE_INTEGER;
      const found = await getJson(`/api/chats/${this.chat}/blocks?before=${first}&limit=${PAGE}`);
      const before = this.root.scrollHeight - this.root.scrollTop;
      const blocks = found.blocks.map(({ number, html }) => {
        const block = fromHtml(html);
        block.dataset.number = number;
        return block;
      });
      this.blocks.prepend(...blocks);
      this.root.scrollTop = this.root.scrollHeight - before;
      this.isComplete = found.is_complete;
      this.earlier.hidden = found.is_complete;
    } finally {
      this.isLoading = false;
    }
  }
}

function openDetails(root, isOpen) {
  for (const details of root.querySelectorAll("details")) details.open = isOpen;
}
