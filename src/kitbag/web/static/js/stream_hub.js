// Shares one event stream between ports (tabs). A tab that starts to follow a topic gets it from its beginning, also if
// other tabs follow it already; those ignore what they have.

import { StreamClient } from "./stream_client.js";

export class StreamHub {
  constructor() {
    this.ports = new Set();
    this.state = "connecting";
    this.client = new StreamClient(
      (topic, event) => this.deliver(topic, event),
      (state, isOtherServer = false) => {
        this.state = state;
        for (const port of this.ports) {
          if (state === "connected") port.post({ type: "token", token: this.client.token }); // other tabs may have an old one
          port.post({ type: "state", state, isOtherServer });
        }
      },
    );
  }

  /** `post(message)` gets messages of type state, event and token. */
  addPort(post) {
    const port = { post, topics: new Map() };
    this.ports.add(port);
    post({ type: "state", state: this.state, isOtherServer: false });
    return port;
  }

  handle(port, message) {
    switch (message.type) {
      case "start":
        if (message.token) this.client.start(message.token);
        else if (this.client.token) port.post({ type: "token", token: this.client.token });
        else port.post({ type: "state", state: "denied", isOtherServer: false });
        break;
      case "follow":
        port.topics.set(message.topic, { isFresh: true, last: -1 });
        this.client.follow(message.topic);
        break;
      case "unfollow":
        port.topics.delete(message.topic);
        this.dropUnfollowed();
        break;
      case "leave":
        this.ports.delete(port);
        this.dropUnfollowed();
        break;
    }
  }

  dropUnfollowed() {
    for (const topic of [...this.client.numbers.keys()]) {
      if (![...this.ports].some((port) => port.topics.has(topic))) this.client.unfollow(topic);
    }
  }

  deliver(topic, event) {
    for (const port of this.ports) {
      const followed = port.topics.get(topic);
      if (!followed) continue;
      if (event.kind === "reset") {
        if (event.is_new && !followed.isFresh) continue;
        followed.isFresh = false;
        followed.last = -1;
      } else if (followed.isFresh) {
        continue;
      } else if (event.number !== undefined) {
        if (event.number <= followed.last) continue;
        followed.last = event.number;
      }
      port.post({ type: "event", event });
    }
  }
}
