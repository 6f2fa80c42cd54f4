// The tree of tasks: a group for each session, tasks below the task that started them. Rows are updated in place.

import { element } from "./dom.js";

const DOTS = { running: "running", "waiting-approval": "waiting", completed: "completed", empty: "completed", queued: "", cancelled: "" };

export class TaskTree {
  constructor(selected) {
    this.selected = selected;
    this.rows = new Map();
    this.groups = new Map();
    this.root = element("ul", { class: "tree task-tree", "aria-label": "Task tree" });
  }

  /** Returns the number of tasks that are shown. `tasks`: newest first. */
  draw(tasks, { matches, sessions, asking }) {
    const byId = new Map(tasks.map((task) => [task.id, task]));
    const visible = new Set();
    for (const task of tasks) {
      for (let one = matches(task) ? task : null; one && !visible.has(one.id); one = byId.get(one.parent)) visible.add(one.id);
    }
    const children = new Map();
    const roots = new Map();
    for (const task of tasks) {
      if (!visible.has(task.id)) continue;
      const key = byId.has(task.parent) ? task.parent : null;
      if (key) pushTo(children, key, task);
      else pushTo(roots, task.root, task);
    }
    for (const id of [...this.rows.keys()]) if (!visible.has(id)) this.rows.delete(id);
    const order = [...roots.keys()].sort((one, other) => Number(isBusy(roots.get(other), children)) - Number(isBusy(roots.get(one), children)));
    const groups = order.map((root) => this.group(root, sessions[root], roots.get(root), children, asking));
    place(this.root, groups);
    for (const root of [...this.groups.keys()]) if (!roots.has(root)) this.groups.delete(root);
    return visible.size;
  }

  group(root, title, tasks, children, asking) {
    let group = this.groups.get(root);
    if (!group) {
      const list = element("ul", {});
      const name = element(root ? "a" : "span", root ? { class: "task-session", href: `/chat/${encodeURIComponent(root)}` } : { class: "task-session" });
      group = { item: element("li", { class: "task-group" }, element("div", { class: "task-group-head" }, name), list), list, name };
      this.groups.set(root, group);
    }
    setText(group.name, title || (root ? `Session ${root.slice(0, 8)}` : "Started in a terminal"));
    place(group.list, tasks.map((task) => this.item(task, children, asking)));
    return group.item;
  }

  item(task, children, asking) {
    let row = this.rows.get(task.id);
    if (!row) {
      row = new TaskRow(task.id, task.id === this.selected);
      this.rows.set(task.id, row);
    }
    row.update(task, asking.get(task.id) ?? 0);
    row.setChildren((children.get(task.id) ?? []).map((child) => this.item(child, children, asking)));
    return row.item;
  }

  /** Durations of running tasks. */
  tick() {
    for (const row of this.rows.values()) row.tick();
  }
}

class TaskRow {
  constructor(id, isSelected) {
    this.dot = element("span", { class: "dot" });
    this.name = element("span", { class: "task-name" });
    this.kind = element("span", { class: "tag" });
    this.badge = element("span", {});
    this.about = element("span", { class: "task-about" });
    this.figures = element("span", { class: "task-figures" });
    this.time = element("span", { class: "task-time" });
    this.list = null;
    const link = element(
      "a",
      { class: "task-row", href: `/tasks/${encodeURIComponent(id)}`, "aria-current": isSelected ? "page" : null },
      this.dot,
      element("span", { class: "task-main" }, element("span", { class: "task-head" }, this.name, this.kind, this.badge), this.about),
      this.figures,
      this.time,
    );
    this.item = element("li", { class: "task-item" }, link);
  }

  update(task, asking) {
    if (this.task === task && this.asking === asking) return;
    this.task = task;
    this.asking = asking;
    this.dot.dataset.status = DOTS[task.status] ?? "failed";
    setText(this.name, task.name);
    setText(this.kind, task.is_command ? "command" : task.is_background ? "background" : "foreground");
    setText(this.badge, asking > 1 ? `${asking} approvals` : task.label);
    this.badge.className = badgeClass(task.tone);
    setText(this.about, task.about);
    this.about.title = task.about;
    setText(this.figures, figures(task));
    this.tick();
  }

  tick() {
    setText(this.time, duration(this.task));
  }

  setChildren(items) {
    if (!items.length && !this.list) return;
    if (!this.list) {
      this.list = element("ul", {});
      this.item.append(this.list);
    }
    place(this.list, items);
    this.list.hidden = !items.length;
  }
}

export function badgeClass(tone) {
  return ["good", "warning", "bad", "accent"].includes(tone) ? `badge badge-${tone}` : "badge";
}

export function figures(task) {
  if (task.is_command) return `${task.size.toLocaleString("en")} bytes`;
  return `${task.turns} ${task.turns === 1 ? "turn" : "turns"} · ${task.tokens.toLocaleString("en")} tokens · ${task.cost}`;
}

export function duration(task) {
  const seconds = task.started ? Math.max((Date.now() - Date.parse(task.started)) / 1000, 0) : task.seconds;
  if (!task.has_started) return "";
  if (seconds < 1) return "<1s";
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${Math.floor(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h ${Math.floor((seconds % 3600) / 60)}m`;
}

function isBusy(tasks, children) {
  return tasks.some((task) => !task.is_finished || isBusy(children.get(task.id) ?? [], children));
}

function pushTo(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Makes these the children, and moves only what is not in its place. */
function place(parent, items) {
  const wanted = new Set(items);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  items.forEach((item, at) => {
    if (parent.children[at] !== item) parent.insertBefore(item, parent.children[at] ?? null);
  });
}
