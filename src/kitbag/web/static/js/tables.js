// Numbers, money and tables of data.

import { element } from "./dom.js";

const FORMAT = new Intl.NumberFormat("en-US");

export function number(value) {
  return value === null || value === undefined ? "?" : FORMAT.format(value);
}

/** Dollars; small amounts with more digits. */
export function money(value) {
  if (value === null || value === undefined) return "?";
  return `$${value.toFixed(value === 0 ? 2 : value < 0.01 ? 5 : value < 1 ? 4 : 2)}`;
}

/** A table with a caption. Cells are texts or elements; `numbers`: the columns of numbers. */
export function table(caption, headers, rows, numbers) {
  const cells = (tag, row) => row.map((cell, at) => element(tag, { class: numbers.includes(at) ? "number" : "", scope: tag === "th" ? "col" : null }, cell));
  return element(
    "div",
    { class: "table-scroll", role: "region", "aria-label": caption, tabindex: "0" },
    element(
      "table",
      { class: "data-table" },
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...cells("th", headers))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))),
    ),
  );
}
