// The chat of one session. Its state is the server's: this shows the topic's events and sends what the user does.

import { postJson } from "./api.js";
import { Composer } from "./composer.js";
import { follow } from "./connection.js";
import { element, pageState, setHtml, showHint } from "./dom.js";
import { Questions } from "./questions.js";
import { Scrollback } from "./scrollback.js";
import { StartPanel } from "./start_panel.js";

const client = crypto.randomUUID();

export async function show(root, context) {
  const [session] = context.parameters;
  const isNew = !session || session === "new";
  const wanted = isNew ? Object.fromEntries([...context.query].filter(([key]) => ["team", "persona", "model", "mode", "agent"].includes(key))) : { resume: session, fork: context.query.get("fork") === "1" };
  const opened = await postJson("/api/chats", wanted);
  const view = new ChatView(root, opened, context);
  return () => view.end();
}

class ChatView {
  constructor(root, opened, context) {
    this.root = root;
    this.chat = opened.chat;
    this.context = context;
    this.wasWorking = false;
    this.scrollback = new Scrollback(this.chat);
    this.questions = new Questions(this.chat, client);
    this.composer = new Composer(this.chat, client);
    this.status = element("div", { class: "statusbar", onclick: (event) => this.runCommand(event) });
    this.start = new StartPanel(this.chat, client);
    this.isNew = !opened.session;
    const title = element("h1", { class: "visually-hidden" }, "Chat");
    root.append(element("section", { class: "chat", "aria-label": "Chat" }, title, this.scrollback.root, this.start.root, this.questions.root, this.composer.root, this.status));
    this.stop = follow(opened.topic, (event) => this.receive(event));
    this.clock = setInterval(() => this.scrollback.tick(), 1000);
    this.composer.focus();
  }

  end() {
    clearInterval(this.clock);
    this.stop();
  }

  /** Mode, model and persona in the status bar open their choices. */
  runCommand(event) {
    const command = event.target.closest("button[name=command]")?.value;
    if (command) void postJson(`/api/chats/${this.chat}/messages`, { text: command, client });
  }

  receive(event) {
    switch (event.kind) {
      case "reset":
        this.scrollback.reset(event.is_complete);
        break;
      case "block":
        this.scrollback.add(event.number, event.html);
        break;
      case "clear":
        this.scrollback.reset(true);
        break;
      case "live":
        this.showLive(event);
        break;
      case "status":
        setHtml(this.status, event.html);
        break;
      case "questions":
        this.questions.set(event.questions);
        this.start.root.classList.toggle("covered", event.questions.length > 0);
        break;
      case "session":
        this.showSession(event.session);
        break;
      case "hint":
        showHint(event.text);
        break;
      case "fold":
        this.scrollback.setOpen(event.is_open);
        break;
      case "insert":
        if (event.client === client) this.composer.insert(event.text);
        break;
      case "copy":
        if (event.client === client) void this.copy(event.text);
        break;
      case "closed":
        this.showClosed(event);
        break;
    }
  }

  showLive(event) {
    this.scrollback.setLive(event.html);
    this.composer.setWorking(event.is_working);
    if (event.is_working) this.start.close();
    if (this.wasWorking && !event.is_working) this.context.sidebar.refresh();
    this.wasWorking = event.is_working;
  }

  showSession(session) {
    const path = `/chat/${encodeURIComponent(session)}`;
    this.context.replacePath(path);
    if (this.isNew) void this.start.open();
    this.isNew = false;
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      showHint("the browser did not allow copying; select the text instead");
    }
  }

  showClosed({ problem, fix, session }) {
    this.composer.root.hidden = true;
    this.scrollback.setLive("");
    const reopen = element("button", { type: "button", class: "button primary", onclick: () => location.reload() }, "Resume");
    const state = problem ? pageState("error", problem, fix) : pageState("empty", "This chat was closed", "", session ? reopen : "");
    this.questions.root.replaceChildren(state);
  }
}
