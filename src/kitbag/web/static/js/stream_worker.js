// The SharedWorker: one event stream for all tabs of the browser.

import { StreamHub } from "./stream_hub.js";

const hub = new StreamHub();

globalThis.addEventListener("connect", (event) => {
  const [channel] = event.ports;
  const port = hub.addPort((message) => channel.postMessage(message));
  channel.addEventListener("message", (received) => hub.handle(port, received.data));
  channel.start();
});
