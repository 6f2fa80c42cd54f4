// The list of sessions: newest first, searched on the server, loaded page by page.

import { getJson, getText, postJson } from "./api.js";
import { debounce, downloadText, element, showHint } from "./dom.js";

const PAGE = 50;
const MAX_REFRESHED = 200;
const DOT_STATES = { open: "running", completed: "completed", interrupted: "waiting", cancelled: "waiting", empty: "waiting" };

export class Sidebar {
  constructor(root, navigate) {
    this.root = root;
    this.navigate = navigate;
    this.loads = 0;
    this.path = "";
    this.search = element("input", {
      type: "search",
      class: "field",
      placeholder: "Search sessions",
      "aria-label": "Search sessions",
      oninput: debounce(() => this.refresh(), 150),
    });
    this.all = element("input", { type: "checkbox", onchange: () => this.refresh() });
    this.list = element("ul", { class: "sessions" });
    this.more = element("button", { type: "button", class: "button ghost", hidden: true, onclick: () => this.loadMore() }, "Show more");
    root.append(
      element("button", { type: "button", class: "button primary new-chat", onclick: () => navigate("/chat/new") }, "New chat"),
      this.search,
      element("label", { class: "checkbox" }, this.all, " All directories"),
      this.list,
      this.more,
    );
  }

  /** Loads the list again, as long as it is. */
  refresh() {
    return this.load(true, 0, Math.min(Math.max(this.list.querySelectorAll("a").length, PAGE), MAX_REFRESHED));
  }

  loadMore() {
    return this.load(false, this.list.querySelectorAll("a").length, PAGE);
  }

  async load(replaces, offset, limit) {
    const current = ++this.loads;
    const query = new URLSearchParams({ q: this.search.value, all: this.all.checked ? "1" : "0", offset, limit });
    let found;
    try {
      found = await getJson(`/api/sessions?${query}`);
    } catch (error) {
      if (replaces) this.list.replaceChildren(element("li", { class: "state state-error" }, error.problem ?? String(error)));
      return;
    }
    if (current !== this.loads) return; // the user has typed on
    const items = found.sessions.map((session) => this.item(session));
    if (replaces) this.list.replaceChildren(...items);
    else this.list.append(...items);
    if (replaces && !items.length) {
      const text = this.search.value ? "No session matches." : "No sessions yet.";
      this.list.replaceChildren(element("li", { class: "state state-empty" }, text));
    }
    this.more.hidden = found.sessions.length < limit;
    this.mark(this.path);
  }

  item(session) {
    const title = session.about || session.id;
    return element(
      "li",
      {},
      element(
        "a",
        { href: `/chat/${encodeURIComponent(session.id)}`, class: "session", title: `${title}\n${session.directory}` },
        element("span", { class: "session-title" }, title),
        element(
          "span",
          { class: "session-meta" },
          element("span", { class: "dot", "data-status": DOT_STATES[session.status] ?? "failed", title: session.status }),
          element("time", { datetime: session.last }, relativeTime(session.last)),
        ),
      ),
      this.menu(session),
    );
  }

  menu(session) {
    const path = `/api/sessions/${encodeURIComponent(session.id)}`;
    const action = (label, run, kind = "") =>
      element("button", { type: "button", class: `button ghost ${kind}`, onclick: (event) => this.choose(event, run) }, label);
    return element(
      "details",
      { class: "menu", onfocusout: (event) => event.currentTarget.contains(event.relatedTarget) || (event.currentTarget.open = false) },
      element("summary", { "aria-label": `Actions for ${session.about || session.id}` }, "⋯"),
      element(
        "div",
        { class: "menu-items" },
        action("Context", () => this.navigate(`/context/${encodeURIComponent(session.id)}`)),
        action("Fork", () => this.navigate(`/chat/${encodeURIComponent(session.id)}?fork=1`)),
        action("Export as Markdown", async () => downloadText(await getText(`${path}/export`), `${session.id}.md`)),
        action("Export as JSON", async () => downloadText(await getText(`${path}/export?format=json`), `${session.id}.json`)),
        action("Delete…", () => this.delete(session, path), "danger"),
      ),
    );
  }

  async choose(event, run) {
    event.currentTarget.closest("details").open = false;
    try {
      await run();
    } catch (error) {
      showHint([error.problem ?? String(error), error.fix].filter(Boolean).join(": "));
    }
  }

  async delete(session, path) {
    const about = session.about || session.id;
    if (!confirm(`Delete the session “${about}” with its tasks and undo data? This can't be undone.`)) return;
    await postJson(`${path}/delete`, {});
    showHint(`deleted session ${session.id}`);
    await this.refresh();
    if (this.path === `/chat/${session.id}`) this.navigate("/chat/new");
  }

  /** Marks the session of a path as the current one. */
  mark(path) {
    this.path = path;
    for (const link of this.list.querySelectorAll("a.session")) {
      if (link.getAttribute("href") === path) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
}

export function relativeTime(text) {
  const at = new Date(text.endsWith("Z") || /[+-]\d\d:\d\d$/.test(text) ? text : `${text}Z`);
  const minutes = Math.round((Date.now() - at.getTime()) / 60000);
  if (Number.isNaN(minutes)) return text;
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return `${Math.round(minutes / 60)} h`;
  return at.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
