// The page: token, navigation between views, connection state. Each view is a module that is loaded when it is shown.

import { ApiError, readToken } from "./api.js";
import { connect, onConnectionState } from "./connection.js";
import { element, pageState } from "./dom.js";
import { Sidebar } from "./sidebar.js";

// Path, module, name in the navigation. A view exports `show(root, context)`, which returns a function that ends it.
const VIEWS = [
  { pattern: /^\/(?:chat(?:\/([^/]*))?)?$/, module: "./chat_view.js", label: "Chat", href: "/chat" },
  { pattern: /^\/context(?:\/([^/]*))?$/, module: "./context_view.js", label: "Context", href: "/context" },
  { pattern: /^\/tasks(?:\/([^/]*))?$/, module: "./task_view.js", label: "Tasks", href: "/tasks" },
  { pattern: /^\/library(?:\/([^/]*)\/([^/]*))?$/, module: "./library_view.js", label: "Library", href: "/library" },
  { pattern: /^\/pack$/, module: "./pack_view.js", label: "Pack", href: "/pack" },
];

const CONNECTION_LABELS = {
  connecting: "connecting",
  connected: "connected",
  disconnected: "reconnecting…",
  denied: "not authorized",
};

const main = document.getElementById("main");
let endView = () => {};
let shownPath = "";
let shows = 0;

/** Goes to a path of this page. */
export function navigate(path, { replace = false } = {}) {
  if (path !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", path);
  closeDrawer();
  void showView();
}

/** Changes the address without showing the view again, such as when a new chat gets its session. */
export function replacePath(path) {
  history.replaceState(null, "", path);
  shownPath = path;
  sidebar.mark(location.pathname);
}

export function showError(root, error, ...actions) {
  const problem = error instanceof ApiError ? error.problem : String(error.message ?? error);
  root.replaceChildren(pageState("error", problem, error.fix ?? "", ...actions));
}

const sidebar = new Sidebar(document.getElementById("sidebar"), navigate);

async function showView() {
  const path = location.pathname + location.search;
  if (path === shownPath) return;
  shownPath = path;
  const view = VIEWS.find((one) => one.pattern.test(location.pathname)) ?? VIEWS[0];
  const current = ++shows;
  endView();
  endView = () => {};
  for (const link of document.querySelectorAll(".nav a")) {
    if (link.getAttribute("href") === view.href) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  sidebar.mark(location.pathname);
  main.replaceChildren(pageState("loading", "Loading…"));
  document.title = `${view.label} – Kitbag`;
  try {
    const module = await import(view.module);
    const parameters = (location.pathname.match(view.pattern) ?? []).slice(1).map((part) => part && decodeURIComponent(part));
    if (current !== shows) return;
    const root = element("div", { class: `view view-${view.label.toLowerCase()}` });
    main.replaceChildren(root);
    const end = await module.show(root, { parameters, query: new URLSearchParams(location.search), navigate, replacePath, sidebar });
    if (current === shows) endView = end ?? (() => {});
    else end?.();
  } catch (error) {
    const retry = element("button", { type: "button", class: "button primary", onclick: () => location.reload() }, "Retry");
    if (current === shows) showError(main, error, retry, element("a", { class: "button", href: "/chat/new" }, "New chat"));
  }
}

/** The code of a block, with the pieces that a long one was split into. */
function codeOf(button) {
  let text = button.parentElement.querySelector("pre")?.textContent ?? "";
  let next = button.closest(".block")?.nextElementSibling;
  while (next?.firstElementChild?.matches(".code-block.continued")) {
    text += `\n${next.querySelector("pre").textContent}`;
    next = next.nextElementSibling;
  }
  return text;
}

/** Between the chat of a session and its context. */
function ofSameSession(href) {
  const shown = location.pathname.match(/^\/(?:chat|context)\/([^/]+)$/)?.[1];
  return shown && shown !== "new" && (href === "/context" || href === "/chat") ? `${href}/${shown}` : href;
}

function closeDrawer() {
  document.body.classList.remove("drawer-open");
  document.querySelector(".drawer-toggle").setAttribute("aria-expanded", "false");
}

function showNavigation() {
  const links = VIEWS.map((view) => element("a", { href: view.href }, view.label));
  document.querySelector(".nav").replaceChildren(...links);
  document.querySelector(".drawer-toggle").addEventListener("click", (event) => {
    const isOpen = document.body.classList.toggle("drawer-open");
    event.currentTarget.setAttribute("aria-expanded", String(isOpen));
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='/']");
    if (!link || link.target || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    navigate(ofSameSession(link.getAttribute("href")));
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy-code");
    if (!button) return;
    await navigator.clipboard.writeText(codeOf(button));
    button.dataset.copied = "";
    setTimeout(() => delete button.dataset.copied, 1500);
  });
  main.addEventListener("click", closeDrawer);
  addEventListener("popstate", () => void showView());
}

function showConnection(state, isOtherServer) {
  const badge = document.querySelector(".connection");
  badge.dataset.state = state;
  badge.textContent = CONNECTION_LABELS[state];
  if (state === "denied") showUnauthorized();
  if (isOtherServer) {
    shownPath = "";
    void showView();
    sidebar.refresh();
  }
}

/** Keeps what the tab shows, such as a message that is being typed. */
function showUnauthorized() {
  const text = "Open the URL that `kitbag web` printed. Each start has a token of its own.";
  const state = pageState("error", "This tab has no valid token", text);
  if (main.querySelector(".view")) main.prepend(state);
  else main.replaceChildren(state);
}

async function start() {
  showNavigation();
  onConnectionState(showConnection);
  if (!(await connect(readToken()))) return showUnauthorized();
  sidebar.refresh();
  await showView();
}

void start();
