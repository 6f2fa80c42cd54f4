// The blocks of a chat. Holds a window of them in the DOM: earlier ones are requested when the user scrolls up, and
// dropped again when the window is long and the user is at its end. Screen readers announce finished blocks only, not
// the reply that is being written.

import { getJson } from "./api.js";
import { element, fromHtml, setHtml, showHint } from "./dom.js";

const PAGE = 100;
const MAX_BLOCKS = 600;
const NEAR_END = 80;
const QUIET_MILLISECONDS = 1000; // blocks that arrive in this time after opening are old ones

export class Scrollback {
  constructor() {
    this.blocks = element("div", { class: "blocks", role: "log", "aria-live": "off", "aria-label": "Messages" });
    this.live = element("div", { class: "live" });
    this.earlier = element("button", { type: "button", class: "button ghost earlier", hidden: true, onclick: () => this.loadEarlier() }, "Show earlier messages");
    this.root = element("div", { class: "scrollback", role: "region", "aria-label": "Conversation", tabindex: "0" }, this.earlier, this.blocks, this.live);
    this.isLoading = false;
    this.isAtEnd = true;
    this.lastTop = 0;
    this.isComplete = true;
    this.isOpen = false;
    this.clocks = [];
    this.root.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.blocks.addEventListener("click", (event) => {
      if (event.target.closest("summary")) this.isAtEnd = false; // what the user opens stays in view
    });
    const resized = new ResizeObserver(() => this.keepAtEnd());
    resized.observe(this.root);
    resized.observe(this.blocks);
  }

  reset(isComplete) {
    this.blocks.replaceChildren();
    this.live.replaceChildren();
    this.isComplete = isComplete;
    this.earlier.hidden = isComplete;
    this.isAtEnd = true;
    this.announceLater();
  }

  /** Announces blocks from soon on: those that come now were there before. */
  announceLater() {
    this.blocks.setAttribute("aria-live", "off");
    clearTimeout(this.quiet);
    this.quiet = setTimeout(() => this.blocks.setAttribute("aria-live", "polite"), QUIET_MILLISECONDS);
  }

  create(number, html) {
    const block = fromHtml(html);
    block.dataset.number = number;
    if (this.isOpen) openDetails(block, true);
    return block;
  }

  add(number, html) {
    this.blocks.append(this.create(number, html));
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

  /** Expands or collapses tool results and thinking, also those to come. Returns whether they are expanded. */
  toggleDetails() {
    this.isOpen = !this.isOpen;
    openDetails(this.blocks, this.isOpen);
    return this.isOpen;
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.root;
    const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_END;
    if (isNearEnd) this.isAtEnd = true;
    else if (scrollTop < this.lastTop) this.isAtEnd = false; // otherwise it is the content that has grown
    this.lastTop = scrollTop;
    if (scrollTop < 200 && !this.isComplete) void this.loadEarlier();
  }

  /** Goes to the end and stays there. */
  followEnd() {
    this.isAtEnd = true;
    this.keepAtEnd();
  }

  keepAtEnd() {
    if (this.isAtEnd) this.root.scrollTop = this.root.scrollHeight;
  }

  async loadEarlier() {
    if (this.isLoading || this.isComplete) return;
    this.isLoading = true;
    const chat = this.chat;
    try {
      const first = this.blocks.firstElementChild?.dataset.number ?? Number.MAX_SAFE_INTEGER;
      const found = await getJson(`/api/chats/${chat}/blocks?before=${first}&limit=${PAGE}`);
      if (chat !== this.chat) return;
      const before = this.root.scrollHeight - this.root.scrollTop;
      this.announceLater();
      this.blocks.prepend(...found.blocks.map(({ number, html }) => this.create(number, html)));
      this.root.scrollTop = this.root.scrollHeight - before;
      this.isComplete = found.is_complete;
      this.earlier.hidden = found.is_complete;
    } catch (error) {
      showHint(error.problem ?? String(error));
    } finally {
      this.isLoading = false;
    }
  }
}

function openDetails(root, isOpen) {
  for (const details of root.querySelectorAll("details")) details.open = isOpen;
}
