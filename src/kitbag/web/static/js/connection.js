// This tab's connection to the event stream: through the SharedWorker, or by itself where there is none.

import { storeToken } from "./api.js";
import { scriptUrl } from "./dom.js";
import { StreamHub } from "./stream_hub.js";

const followers = new Map();
const stateListeners = new Set();
let send = () => {};
let resolveToken = () => {};
export let connectionState = "connecting";

function receive(message) {
  if (message.type === "event") {
    followers.get(message.event.topic)?.(message.event);
  } else if (message.type === "token") {
    storeToken(message.token);
    resolveToken(message.token);
  } else {
    connectionState = message.state;
    if (message.state === "denied") resolveToken("");
    for (const listener of stateListeners) listener(message.state, message.isOtherServer);
  }
}

function openWorker() {
  const worker = new SharedWorker(scriptUrl("/static/js/stream_worker.js"), { type: "module", name: "kitbag-stream" });
  worker.port.addEventListener("message", (received) => receive(received.data));
  worker.port.start();
  return (message) => worker.port.postMessage(message);
}

function openLocally() {
  const hub = new StreamHub();
  const port = hub.addPort((message) => receive(message));
  return (message) => hub.handle(port, message);
}

/** Connects. Resolves to the token: the given one, or that of another tab; empty if there is none. */
export function connect(token) {
  try {
    send = globalThis.SharedWorker ? openWorker() : openLocally();
  } catch {
    send = openLocally();
  }
  addEventListener("pagehide", () => send({ type: "leave" }));
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  send({ type: "start", token });
  if (token) return Promise.resolve(token);
  return new Promise((resolve) => {
    resolveToken = resolve;
  });
}

/** Calls `receiveEvent` with each event of a topic, from its beginning. Returns a function that ends it. */
export function follow(topic, receiveEvent) {
  followers.set(topic, receiveEvent);
  send({ type: "follow", topic });
  return () => {
    if (followers.get(topic) !== receiveEvent) return;
    followers.delete(topic);
    send({ type: "unfollow", topic });
  };
}

/** Calls `listener(state, isOtherServer)` at each change of the connection. Returns a function that ends it. */
export function onConnectionState(listener) {
  stateListeners.add(listener);
  return () => stateListeners.delete(listener);
}
