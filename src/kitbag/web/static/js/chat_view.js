// The chat of one session. Its state is the server's: this shows the topic's events and sends what the user does.

import { postJson } from "./api.js";
import { Composer } from "./composer.js";
import { follow } from "./connection.js";
import { element, pageState, setHtml, showHint } from "./dom.js";
import { Questions } from "./questions.js";
import { Scrollback } from "./scrollback.js";
import { StartPanel } from "./start_panel.js";

const client = crypto.randomUUID();
const START_OPTIONS = ["team", "persona", "model", "mode", "agent"];
let left = { session: "", text: "" }; // what was typed in the chat that was shown before

export async function show(root, context) {
  const [session] = context.parameters;
  const isNew = !session || session === "new";
  const options = Object.fromEntries([...context.query].filter(([key]) => START_OPTIONS.includes(key)));
  const wanted = isNew ? options : { resume: session, fork: context.query.get("fork") === "1" };
  root.append(pageState("loading", "Loading…"));
  const opened = await postJson("/api/chats", wanted);
  root.replaceChildren(); // only now is there something to send a message to
  const view = new ChatView(root, context);
  view.open(opened);
  if (left.text && left.session === opened.session) view.composer.insert(left.text);
  return () => view.end();
}

class ChatView {
  constructor(root, context) {
    this.context = context;
    this.session = "";
    this.wasWorking = false;
    this.stop = () => {};
    this.scrollback = new Scrollback();
    this.composer = new Composer(client, { toggleDetails: () => this.toggleDetails(), onSend: () => this.scrollback.followEnd() });
    this.questions = new Questions(client, () => this.composer.focus());
    this.status = element("div", { class: "statusbar", onclick: (event) => this.runCommand(event) });
    this.start = new StartPanel(client);
    this.ended = element("div", { class: "ended" });
    this.announcement = element("div", { class: "visually-hidden", role: "status" });
    const title = element("h1", { class: "visually-hidden" }, "Chat");
    const parts = [this.scrollback.root, this.start.root, this.questions.root, this.ended, this.composer.root, this.status];
    this.root = element("section", { class: "chat", "aria-label": "Chat" }, title, ...parts, this.announcement);
    this.composer.acceptDrops(this.root);
    root.append(this.root);
    this.clock = setInterval(() => this.scrollback.tick(), 1000);
  }

  /** Shows a chat of the server, which replaces the one before: a session that was opened again. */
  open({ chat, topic, session }) {
    this.stop();
    this.chat = chat;
    this.isNew = !session;
    for (const part of [this.scrollback, this.questions, this.composer, this.composer.preview, this.start]) part.chat = chat;
    this.ended.replaceChildren();
    this.composer.root.hidden = false;
    this.stop = follow(topic, (event) => this.receive(event));
    this.composer.focus();
  }

  end() {
    clearInterval(this.clock);
    this.stop();
    left = { session: this.session, text: this.composer.input.value };
  }

  /** Opens the session again, after its chat has ended on the server. */
  async reopen() {
    this.stop();
    try {
      this.open(await postJson("/api/chats", { resume: this.session }));
    } catch (error) {
      if (error.status === 404) this.context.navigate("/chat/new");
      else this.showEnded(pageState("error", error.problem, error.fix, this.button("Retry", () => this.reopen())));
    }
  }

  /** Mode, model and persona in the status bar open their choices. */
  async runCommand(event) {
    const command = event.target.closest("button[name=command]")?.value;
    if (!command) return;
    try {
      await postJson(`/api/chats/${this.chat}/messages`, { text: command, client });
    } catch (error) {
      showHint(error.problem);
    }
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
        this.start.showCurrent(event);
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
      case "insert":
        if (event.client === client) this.composer.insert(event.text, event.images);
        break;
      case "copy":
        if (event.client === client) void this.copy(event.text);
        break;
      case "gone":
        void this.reopen();
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
    if (this.wasWorking !== event.is_working) this.announcement.textContent = event.is_working ? "Working" : "Done";
    if (this.wasWorking && !event.is_working) this.context.sidebar.refresh();
    this.wasWorking = event.is_working;
  }

  showSession(session) {
    if (this.session && this.session !== session) this.context.sidebar.refresh();
    this.session = session;
    this.context.replacePath(`/chat/${encodeURIComponent(session)}`);
    if (this.isNew) void this.start.open();
    this.isNew = false;
  }

  toggleDetails() {
    this.composer.showDetailsState(this.scrollback.toggleDetails());
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      showHint("the browser did not allow copying; select the text instead");
    }
  }

  button(label, run) {
    return element("button", { type: "button", class: "button primary", onclick: run }, label);
  }

  showClosed({ problem, fix, session, reason }) {
    this.session = session;
    if (reason === "idle") return void this.reopen();
    const resume = this.button(problem ? "Retry" : "Resume", () => (session ? this.reopen() : location.reload()));
    const start = this.button("New chat", () => this.context.navigate("/chat/new"));
    if (reason === "deleted") this.showEnded(pageState("empty", "This session was deleted", "", start));
    else this.showEnded(problem ? pageState("error", problem, fix, resume) : pageState("empty", "This chat was closed", "", resume));
  }

  showEnded(state) {
    this.composer.root.hidden = true;
    this.scrollback.setLive("");
    this.start.close();
    this.ended.replaceChildren(state);
  }
}
