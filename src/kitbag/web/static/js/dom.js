// Small helpers for the DOM. HTML comes only from Kitbag's own server, which renders and sanitizes it.

const policy = globalThis.trustedTypes
  ? globalThis.trustedTypes.createPolicy("kitbag", { createHTML: (html) => html, createScriptURL: (url) => url })
  : { createHTML: (html) => html, createScriptURL: (url) => url };

/** Creates an element: element("button", { class: "button", onclick: f, "aria-label": "x" }, "text", child). */
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (key in created && typeof value !== "string") created[key] = value;
    else created.setAttribute(key, value === true ? "" : value);
  }
  created.append(...children.filter((child) => child !== null && child !== undefined));
  return created;
}

/** Replaces the content of an element with HTML rendered by the server. */
export function setHtml(target, html) {
  target.innerHTML = policy.createHTML(html);
}

/** The first element of HTML rendered by the server. */
export function fromHtml(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content.firstElementChild ?? document.createElement("span");
}

export function scriptUrl(path) {
  return policy.createScriptURL(path);
}

/** A full-page state: empty, loading, error, disconnected or untrusted. */
export function pageState(kind, title, text = "", ...actions) {
  return element(
    "div",
    { class: `state state-${kind}`, role: kind === "error" ? "alert" : "status" },
    element("h2", {}, title),
    text ? element("p", {}, text) : null,
    ...actions,
  );
}

let hintTimer = 0;

/** Shows a text for a moment. */
export function showHint(text) {
  const area = document.querySelector(".hints");
  area.replaceChildren(element("div", { class: "hint" }, text));
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => area.replaceChildren(), 5000);
}

export function debounce(run, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), milliseconds);
  };
}

/** Saves a text as a file. */
export function downloadText(text, name) {
  const url = URL.createObjectURL(new Blob([text]));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
