// "What would this message get?": the skills that a new session describes and suggests, with scores, as one types.

import { postJson } from "./api.js";
import { debounce, element, fromHtml } from "./dom.js";

const TONES = { suggested: "badge-good", loaded: "badge-good", described: "badge-accent", hidden: "badge-warning" };

export class MessageTrial {
  constructor() {
    this.requests = 0;
    this.input = element("textarea", { rows: "1", id: "trial-message", placeholder: "Review the billing change before it is merged", oninput: debounce(() => void this.explain(), 200) });
    this.results = element("div", { class: "trial-results", "aria-live": "polite" });
    this.root = element("section", { class: "card trial", "aria-label": "Try a message" }, element("div", { class: "field" }, element("label", { for: "trial-message" }, "Type a message to see which skills a session would describe and suggest, and why"), this.input), this.results);
  }

  end() {
    this.requests += 1;
  }

  async explain() {
    const current = ++this.requests;
    const message = this.input.value;
    if (!message.trim()) return this.results.replaceChildren();
    try {
      const { skills } = await postJson("/api/library/explain", { message });
      if (current !== this.requests) return;
      this.results.replaceChildren(skills.length ? element("div", { class: "trial-list" }, ...skills.map(explained)) : element("p", { class: "trial-none" }, "No skill matches this message."));
    } catch (error) {
      if (current === this.requests) this.results.replaceChildren(element("p", { class: "trial-none", role: "alert" }, [error.problem, error.fix].filter(Boolean).join(". ")));
    }
  }
}

function explained(skill) {
  return element("details", { class: "trial-skill" }, element("summary", {}, ...matchCells(skill)), fromHtml(skill.html));
}

/** Name, outcome, probability and reason of a match. */
export function matchCells(skill) {
  return [
    element("span", { class: "trial-name" }, skill.name),
    element("span", { class: `badge ${TONES[skill.outcome] ?? ""}` }, skill.outcome),
    bar(skill.probability),
    element("span", { class: "trial-score", title: "probability, score" }, `${Math.round(skill.probability * 100)}% · ${skill.score.toFixed(1)}`),
    element("span", { class: "trial-reason" }, skill.reason || skill.rule),
  ];
}

function bar(share) {
  const meter = element("meter", { min: "0", max: "1", class: "trial-meter", "aria-label": "Probability" });
  meter.value = share;
  return meter;
}
