// The pieces of one request: a treemap, a list and the text of the chosen piece, with the selection in step.

import { getJson } from "./api.js";
import { element, setHtml } from "./dom.js";
import { money, number, table } from "./tables.js";

const PAGE = 300;

export class CallPieces {
  constructor(path, callNumber, call) {
    this.path = path;
    this.callNumber = callNumber;
    this.call = call;
    this.rows = [];
    this.selected = -1;
    this.requests = 0;
    this.filter = element("input", { type: "search", class: "search", placeholder: "Filter pieces", "aria-label": "Filter pieces", oninput: () => this.drawRows(PAGE) });
    this.picture = element("section", { class: "card context-picture", "aria-label": "Treemap of the request", onclick: (event) => this.chooseCell(event) });
    setHtml(this.picture, call.picture);
    this.body = element("tbody", {});
    this.more = element("button", { type: "button", class: "button ghost", hidden: true, onclick: () => this.drawRows(Infinity) }, "Show all");
    this.text = element("section", { class: "card context-text", "aria-label": "Text of the piece", "aria-live": "polite" }, element("p", { class: "dim" }, "Choose a piece to read its text."));
  }

  sections() {
    const headers = ["Piece, source and reason", "Tokens", "Bytes", "From byte", "Cost"];
    const list = element(
      "div",
      { class: "table-scroll context-list", role: "region", "aria-label": "Pieces in order", tabindex: "0" },
      element("table", { class: "data-table" }, element("thead", {}, element("tr", {}, ...headers.map((text, at) => element("th", { scope: "col", class: at > 0 ? "number" : "" }, text)))), this.body),
    );
    this.drawRows(PAGE);
    const absent = this.call.absent.map((item) => [item.name, item.kind, item.tokens === null ? "?" : number(item.tokens), item.reason]);
    return [
      this.picture,
      element("div", { class: "toolbar" }, element("h2", {}, `Sent, in order (${number(this.call.pieces.length)})`), this.filter),
      element("div", { class: "context-split" }, element("div", {}, list, this.more), this.text),
      element(
        "details",
        { class: "context-absent", open: true },
        element("summary", {}, `Not sent (${number(absent.length)})`),
        absent.length ? table("Not sent, and why", ["Item", "Kind", "Tokens", "Reason"], absent, [2]) : element("p", {}, "Nothing."),
      ),
    ];
  }

  drawRows(most) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = this.call.pieces
      .map((piece, index) => [piece, index])
      .filter(([piece]) => words.every((word) => `${piece.label} ${piece.kind} ${piece.source} ${piece.reason}`.toLowerCase().includes(word)));
    this.rows = matches.slice(0, most).map(([piece, index]) => this.row(piece, index));
    this.body.replaceChildren(...this.rows);
    this.more.hidden = matches.length <= most;
    this.mark();
  }

  row(piece, index) {
    const name = element("button", { type: "button", class: "context-piece", onclick: () => this.choose(index) }, swatch(piece.group), piece.label, element("span", { class: "tag" }, piece.kind));
    const cells = [number(piece.tokens), number(piece.bytes), number(piece.offset), money(piece.cost)];
    const reason = element("div", { class: "context-reason" }, `${piece.source}: ${piece.reason}`);
    return element("tr", { "data-index": String(index) }, element("td", {}, name, reason), ...cells.map((text) => element("td", { class: "number" }, text)));
  }

  chooseCell(event) {
    const key = event.target.closest("[data-key]")?.dataset.key;
    if (key) this.choose(Number(key), true);
  }

  async choose(index, scrolls = false) {
    this.selected = index;
    if (scrolls && !this.rows.some((row) => row.dataset.index === String(index))) {
      this.filter.value = "";
      this.drawRows(Math.max(PAGE, index + 1));
    }
    this.mark(scrolls);
    const current = ++this.requests;
    const piece = this.call.pieces[index];
    let found;
    try {
      found = await getJson(`${this.path}/piece?number=${this.callNumber}&piece=${index}`);
    } catch (error) {
      found = { text: error.problem ?? String(error), omitted: 0 };
    }
    if (current !== this.requests) return;
    const omitted = found.omitted ? element("p", { class: "dim" }, `${number(found.omitted)} more characters`) : null;
    const facts = `${number(piece.tokens)} tokens, ${number(piece.bytes)} bytes from byte ${number(piece.offset)}`;
    this.text.replaceChildren(element("h3", {}, piece.label), element("p", { class: "dim" }, facts), element("pre", { tabindex: "0" }, found.text), ...(omitted ? [omitted] : []));
  }

  mark(scrolls = false) {
    for (const row of this.rows) {
      const isSelected = row.dataset.index === String(this.selected);
      row.classList.toggle("is-selected", isSelected);
      row.querySelector("button").setAttribute("aria-pressed", String(isSelected));
      if (isSelected && scrolls) row.scrollIntoView({ block: "nearest" });
    }
    const piece = this.call.pieces[this.selected];
    const same = piece ? this.call.pieces.findIndex((one) => one.label === piece.label && one.group === piece.group) : -1;
    for (const cell of this.picture.querySelectorAll("[data-key]")) cell.classList.toggle("is-selected", cell.dataset.key === String(same));
  }
}

function swatch(group) {
  const root = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  root.setAttribute("class", "context-swatch");
  root.setAttribute("viewBox", "0 0 10 10");
  root.setAttribute("aria-hidden", "true");
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "10", height: "10", rx: "3", class: `kb-g-${group}` })) box.setAttribute(name, value);
  root.append(box);
  return root;
}
