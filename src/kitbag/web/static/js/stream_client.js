// Reads the server's event stream and passes each event to the followers of its topic. Runs in a SharedWorker, so that
// all tabs of a browser share one connection, or in the tab itself where there are no SharedWorkers.

const RETRY_MILLISECONDS = [250, 500, 1000, 2000, 4000];
const SILENCE_MILLISECONDS = 40000;

export class StreamClient {
  /** `emit(topic, event)` gets every event; `onState(state)` gets connecting, connected, disconnected or denied. */
  constructor(emit, onState) {
    this.emit = emit;
    this.onState = onState;
    this.token = "";
    this.accepted = ""; // the last token that the server accepted
    this.numbers = new Map();
    this.server = "";
    this.stream = "";
    this.failures = 0;
    this.isRunning = false;
    this.abort = null;
    this.sending = Promise.resolve();
  }

  start(token) {
    const isNew = token && token !== this.token;
    if (isNew) {
      this.token = token;
      this.failures = 0;
      this.abort?.abort();
    }
    if (!this.isRunning && this.token) void this.run();
  }

  /** Requests a topic from its beginning. */
  follow(topic) {
    this.numbers.set(topic, -1);
    void this.sendTopics([topic]);
  }

  unfollow(topic) {
    if (this.numbers.delete(topic)) void this.sendTopics();
  }

  /** One request after another: an older one that arrives later would undo a newer one. */
  sendTopics(restart = []) {
    this.sending = this.sending.then(() => this.sendTopicsNow(restart));
    return this.sending;
  }

  async sendTopicsNow(restart) {
    if (!this.stream) return;
    try {
      const response = await this.post(`/api/stream/${this.stream}`, { restart });
      if (response.status === 404) this.abort?.abort();
    } catch {
      // The stream has broken off as well; reconnecting sends the topics.
    }
  }

  post(path, { restart = [], signal } = {}) {
    return fetch(path, {
      method: "POST",
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: JSON.stringify({ topics: Object.fromEntries(this.numbers), server: this.server, restart }),
      credentials: "omit",
      cache: "no-store",
      signal,
    });
  }

  async run() {
    this.isRunning = true;
    while (this.token) {
      const { token } = this;
      this.onState(this.failures ? "disconnected" : "connecting");
      try {
        await this.connect();
      } catch (error) {
        // A refusal of an earlier token says nothing about a new one.
        if (error.status === 401 && token === this.token) {
          this.token = token === this.accepted ? "" : this.accepted; // a tab may have brought that of an earlier start
          if (!this.token) {
            this.onState("denied");
            break;
          }
        }
      }
      this.stream = "";
      if (token !== this.token) continue;
      this.onState("disconnected");
      const pause = RETRY_MILLISECONDS[Math.min(this.failures, RETRY_MILLISECONDS.length - 1)];
      this.failures += 1;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    this.isRunning = false;
  }

  async connect() {
    this.abort = new AbortController();
    const { signal } = this.abort;
    let silence = setTimeout(() => this.abort.abort(), SILENCE_MILLISECONDS);
    try {
      const response = await this.post("/api/stream", { signal });
      if (!response.ok) throw Object.assign(new Error("refused"), { status: response.status });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => this.abort.abort(), SILENCE_MILLISECONDS);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) this.receive(part);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  receive(part) {
    const line = part.split("\n").find((one) => one.startsWith("data: "));
    if (!line) return;
    const event = JSON.parse(line.slice(6));
    if (event.kind === "hello") {
      this.accepted = this.token;
      this.failures = 0;
      const isOther = this.server && this.server !== event.server;
      this.server = event.server;
      this.stream = event.stream;
      this.onState("connected", isOther);
      void this.sendTopics(); // those that were followed meanwhile
      return;
    }
    if (!this.numbers.has(event.topic)) return;
    if (event.number !== undefined) this.numbers.set(event.topic, event.number);
    this.emit(event.topic, event);
  }
}
