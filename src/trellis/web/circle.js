// The identifier circle: nodes at their places on the ring, clockwise from the top; links as chords.

import { LIVING } from "./mesh.js";
import { plural, s, set } from "./dom.js";

const LETTERS_PX = 11; // of names, on the screen
const TO_NAMES = 30; // from the ring
const LETTERS_MAX = 14; // of a name; the rest is in the tip
const NAMES_MAX = 64; // above that only those that matter have their names shown
const FRESH_MS = 4000;

const at = (angle, radius) => [radius * Math.sin(angle), -radius * Math.cos(angle)];
const short = (name) => (name.length > LETTERS_MAX ? `${name.slice(0, LETTERS_MAX - 1)}…` : name);

export class Circle {
  constructor(root, choose) {
    this.root = root;
    this.choose = choose;
    this.nodes = new Map(); // name -> {group, dot, label, leader, angle, x, y}
    this.links = new Map(); // key -> path
    this.order = []; // names, clockwise
    this.current = null; // the name that Tab reaches
    this.hovered = null;
    this.drawn = { reset: -1, version: -1, focus: "" };
    this.radius = 400;
    this.ring = s("g", { class: "ring" });
    this.chords = s("g", { class: "chords" });
    this.ripples = s("g", { class: "ripples" });
    this.names = s("g", { class: "names" });
    this.dots = s("g", { class: "dots" });
    this.tip = s("g", { class: "tip", visibility: "hidden" }, s("rect", { rx: 7 }), s("text", {}), s("text", { class: "second" }));
    root.append(this.ring, this.chords, this.ripples, this.names, this.dots, this.tip);
    new ResizeObserver(() => {
      if (this.mesh) {
        this.#places(this.mesh);
        this.#chords(this.mesh, true);
      }
    }).observe(root);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("click", (event) => {
      if (!event.target.closest(".node")) this.choose(null);
    });
  }

  /** `focus` is {topic, node, parts}: what is chosen. */
  draw(mesh, focus) {
    this.mesh = mesh;
    this.focus = focus;
    const isNews = this.drawn.reset === mesh.reset;
    if (this.drawn.version !== mesh.version || !isNews) {
      this.#places(mesh);
      this.#chords(mesh, isNews);
      this.drawn = { reset: mesh.reset, version: mesh.version };
    }
    this.#mark(mesh, focus);
  }

  ripple(name, kind) {
    const node = this.nodes.get(name);
    if (!node) return;
    const ring = s("circle", { class: `ripple ${kind}`, cx: node.x, cy: node.y, r: 12 });
    this.ripples.append(ring);
    setTimeout(() => ring.remove(), 2400);
  }

  /** As large as the names leave it. */
  #fit(letters) {
    const longest = Math.max(3, ...this.order.map((name) => Math.min(name.length, LETTERS_MAX)));
    const names = this.order.length > NAMES_MAX ? 40 : 0.56 * letters * longest;
    const radius = Math.round(Math.max(330, Math.min(430, 495 - TO_NAMES - names)));
    if (radius === this.radius && this.ring.firstChild) return;
    this.radius = radius;
    this.ring.replaceChildren(s("circle", { r: radius, class: "ring-line" }), ...this.#ticks());
  }

  #ticks() {
    const ticks = [];
    for (let step = 0; step < 64; step++) {
      const angle = (step / 64) * 2 * Math.PI;
      const [x1, y1] = at(angle, this.radius - (step % 16 ? 3 : 8));
      const [x2, y2] = at(angle, this.radius + (step % 16 ? 3 : 8));
      ticks.push(s("line", { class: "tick", x1, y1, x2, y2 }));
    }
    return ticks;
  }

  #places(mesh) {
    const present = [...mesh.nodes.values()].sort((one, other) => one.place - other.place);
    const crowd = present.length;
    const size = Math.max(4.5, Math.min(11, 150 / Math.sqrt(crowd * 6)));
    this.order = present.map((node) => node.name);
    this.root.classList.toggle("crowded", crowd > NAMES_MAX);
    this.root.classList.toggle("many-links", mesh.links.size > 300);
    const scale = Math.min(this.root.clientWidth, this.root.clientHeight) / 1000 || 0.5;
    const letters = Math.max(14, Math.min(34, LETTERS_PX / scale));
    this.names.setAttribute("font-size", letters);
    this.#fit(letters);
    const outside = this.radius + TO_NAMES;
    const levels = levelsOf(present.map((node) => node.place * 2 * Math.PI * this.radius), 1.9 * size, 2 * Math.PI * this.radius);
    const spread = spreadOut(present.map((node) => node.place * 2 * Math.PI), (1.12 * letters) / outside);
    for (const [name, one] of this.nodes) {
      if (!mesh.nodes.has(name)) {
        one.group.remove();
        one.label.remove();
        one.leader.remove();
        this.nodes.delete(name);
      }
    }
    present.forEach((node, index) => {
      const one = this.nodes.get(node.name) ?? this.#make(node.name);
      one.angle = node.place * 2 * Math.PI;
      [one.x, one.y] = at(one.angle, this.radius - levels[index] * 2.3 * size);
      one.group.setAttribute("transform", `translate(${one.x} ${one.y})`);
      const degree = (mesh.facts.peers.get(node.name) ?? []).length;
      set(one.dot, { r: size + Math.min(5, degree * 0.22) });
      set(one.cross, { d: `M${-size / 2} ${-size / 2} ${size / 2} ${size / 2}M${size / 2} ${-size / 2} ${-size / 2} ${size / 2}` });
      const turned = crowd > NAMES_MAX ? one.angle : spread[index];
      const [lx, ly] = at(turned, outside);
      const isRight = Math.sin(turned) >= 0;
      const degrees = (turned * 180) / Math.PI - 90;
      set(one.label, {
        transform: `translate(${lx} ${ly}) rotate(${isRight ? degrees : degrees + 180})`,
        "text-anchor": isRight ? "start" : "end",
      });
      const [sx, sy] = at(one.angle, this.radius + size + 4);
      const [ex, ey] = at(turned, outside - 5);
      set(one.leader, { d: `M${sx} ${sy}L${ex} ${ey}` });
      const state = node.state === "up" ? "" : `, ${node.state}`;
      set(one.group, { "aria-label": `${node.name}${state}, ${plural(degree, "link")}, ${plural(node.topics.size, "topic")}` });
    });
    if (!this.nodes.has(this.current)) this.#reach(this.order[0] ?? null);
  }

  #make(name) {
    const dot = s("circle", { class: "dot", r: 9 });
    const halo = s("circle", { class: "halo", r: 20 });
    const cross = s("path", { class: "cross" });
    const group = s("g", {
      class: "node",
      role: "button",
      tabindex: -1,
      "data-name": name,
      onclick: () => this.choose(name),
      onpointerenter: () => this.#hover(name),
      onpointerleave: () => this.#hover(null),
      onfocus: () => this.#hover(name),
      onblur: () => this.#hover(null),
    }, s("circle", { class: "target", r: 22 }), halo, dot, cross);
    const label = s("text", { class: "name", dy: "0.35em" });
    label.textContent = short(name);
    const leader = s("path", { class: "leader" });
    this.dots.append(group);
    this.names.append(leader, label);
    const one = { group, dot, halo, cross, label, leader, angle: 0, x: 0, y: 0 };
    this.nodes.set(name, one);
    return one;
  }

  #chords(mesh, isNews) {
    for (const [key, path] of this.links) {
      if (!mesh.links.has(key)) {
        this.links.delete(key);
        if (isNews && !path.classList.contains("leaving")) {
          path.classList.add("leaving");
          setTimeout(() => path.remove(), 700);
        } else path.remove();
      }
    }
    for (const link of mesh.links.values()) {
      const u = this.nodes.get(link.u);
      const v = this.nodes.get(link.v);
      if (!u || !v) continue;
      let path = this.links.get(link.key);
      if (!path) {
        path = s("path", { class: "link" });
        this.links.set(link.key, path);
        this.chords.append(path);
        if (isNews && link.state === "up") {
          path.classList.add("fresh");
          setTimeout(() => path.classList.remove("fresh"), FRESH_MS);
        }
      }
      const bend = 0.5;
      set(path, { d: `M${u.x} ${u.y}Q${((u.x + v.x) / 2) * bend} ${((u.y + v.y) / 2) * bend} ${v.x} ${v.y}` });
      path.classList.toggle("broken", link.state === "broken");
    }
  }

  #mark(mesh, { topic, node: chosen, parts }) {
    const near = this.hovered ?? chosen;
    const peers = new Set((near && mesh.facts.peers.get(near)?.map(([peer]) => peer)) || []);
    const mending = new Set([...mesh.mending.values()].map((mend) => mend.by));
    this.root.classList.toggle("has-topic", Boolean(topic));
    this.root.classList.toggle("has-near", Boolean(near));
    for (const [name, one] of this.nodes) {
      const node = mesh.nodes.get(name);
      if (!node) continue;
      const isIn = topic ? parts.of.has(name) || (node.topics.has(topic) && !LIVING.has(node.state)) : true;
      const part = topic && parts.sizes.length > 1 && parts.of.has(name) ? ` part-${parts.of.get(name) % 6}` : "";
      const marks = [`node ${node.state}${part}`];
      if (topic) marks.push(isIn ? "lit" : "dim");
      if (name === chosen) marks.push("chosen");
      if (name === near || peers.has(name)) marks.push("near");
      if (mending.has(name)) marks.push("mends");
      if (node.complaints?.length) marks.push("unhealthy");
      const isUrgent = !LIVING.has(node.state) || mending.has(name);
      if (isUrgent && !one.isUrgent) this.#lift(one.group);
      one.isUrgent = isUrgent;
      mark(one.group, marks.join(" "));
      const isShown = name === near || peers.has(name) || (topic && isIn) || mending.has(name) || !LIVING.has(node.state);
      mark(one.label, `name${topic && !isIn ? " dim" : ""}${isShown ? " shown" : ""}`);
      mark(one.leader, `leader${topic && !isIn ? " dim" : ""}`);
      if (name === chosen) one.group.setAttribute("aria-pressed", "true");
      else one.group.removeAttribute("aria-pressed");
    }
    for (const link of mesh.links.values()) {
      const path = this.links.get(link.key);
      if (!path) continue;
      const isIn = topic && [link.u, link.v].every((name) => mesh.nodes.get(name)?.topics.has(topic));
      const isNear = near && (link.u === near || link.v === near);
      const kept = [...path.classList].filter((one) => one === "fresh" || one === "broken");
      if (topic) kept.push(isIn ? "lit" : "dim");
      if (isIn && parts.sizes.length > 1 && parts.of.has(link.u)) kept.push(`part-${parts.of.get(link.u) % 6}`);
      if (isNear) kept.push("near");
      mark(path, ["link", ...kept].join(" "));
    }
  }

  /** On top of the others. */
  #lift(group) {
    const hasFocus = document.activeElement === group;
    this.dots.append(group);
    if (hasFocus) group.focus();
  }

  #hover(name) {
    this.hovered = name;
    if (this.mesh) this.#mark(this.mesh, this.focus);
    this.#tell(name);
  }

  #tell(name) {
    const one = name && this.nodes.get(name);
    const node = one && this.mesh.nodes.get(name);
    if (!node) {
      this.tip.setAttribute("visibility", "hidden");
      return;
    }
    const [box, first, second] = this.tip.children;
    first.textContent = name.length > 34 ? `${name.slice(0, 33)}…` : name;
    const degree = (this.mesh.facts.peers.get(name) ?? []).length;
    second.textContent = `${node.state} · ${plural(degree, "link")} · ${plural(node.topics.size, "topic")}`;
    this.tip.setAttribute("visibility", "visible");
    const width = Math.max(first.getComputedTextLength(), second.getComputedTextLength()) + 24;
    const [x, y] = at(one.angle, this.radius - 40);
    const left = Math.max(-490, Math.min(490 - width, x - width / 2));
    const top = Math.max(-490, Math.min(430, y - 28));
    set(box, { x: left, y: top, width, height: 58 });
    set(first, { x: left + 12, y: top + 24 });
    set(second, { x: left + 12, y: top + 45 });
  }

  #reach(name) {
    if (this.nodes.has(this.current)) this.nodes.get(this.current).group.setAttribute("tabindex", -1);
    this.current = name;
    if (name !== null) this.nodes.get(name).group.setAttribute("tabindex", 0);
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const index = this.order.indexOf(this.current);
    if (step !== undefined && this.order.length) {
      this.#reach(this.order[(index + step + this.order.length) % this.order.length]);
      this.nodes.get(this.current).group.focus();
    } else if ((event.key === "Enter" || event.key === " ") && event.target.closest(".node")) {
      this.choose(this.current);
    } else if (event.key === "Escape") {
      this.choose(null);
    } else return;
    event.preventDefault();
  }
}

/** Whatever is set is painted again, even if it is the same. */
function mark(element, classes) {
  if (element.getAttribute("class") !== classes) element.setAttribute("class", classes);
}

/** On which of three levels dots are drawn, so that none covers another: `places` in order, on a circle. */
export function levelsOf(places, width, around) {
  const last = [places.length ? places.at(-1) - around : 0, -Infinity, -Infinity]; // the place of the latest dot of a level
  return places.map((place) => {
    const free = last.findIndex((before) => place - before >= width);
    const level = Math.max(0, free);
    last[level] = place;
    return level;
  });
}

/** Angles in order, moved as little as need be so that none is nearer than `gap` to the next. */
export function spreadOut(angles, gap) {
  const count = angles.length;
  const turned = [...angles];
  if (count < 2) return turned;
  const least = Math.min(gap, (0.96 * 2 * Math.PI) / count);
  for (let round = 0; round < 80; round++) {
    let moved = 0;
    for (let index = 0; index < count; index++) {
      const next = (index + 1) % count;
      const distance = turned[next] - turned[index] + (next === 0 ? 2 * Math.PI : 0);
      if (distance < least) {
        const push = (least - distance) / 2;
        turned[index] -= push;
        turned[next] += push;
        moved = Math.max(moved, push);
      }
    }
    if (moved < 1e-4) break;
  }
  return turned;
}
