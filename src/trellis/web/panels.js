// The lists beside the circle: topics, the chosen node, what happened.

import { LIVING } from "./mesh.js";
import { $, duration, h, plural } from "./dom.js";

const TOPICS_SHOWN = 400;
const CHIPS_SHOWN = 60;
const LOG_MAX = 200;

export class Topics {
  constructor(choose) {
    this.choose = choose;
    this.shown = []; // names, as listed; null: all
    this.rows = new Map();
    this.drawn = "";
    $("search").addEventListener("input", () => this.draw(this.mesh, this.focus));
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") $("topic-list").focus();
      else if (event.key === "Enter" && this.shown.length > 1) this.choose(this.shown[1]);
      else return;
      event.preventDefault();
    });
    $("topic-list").addEventListener("keydown", (event) => this.#key(event));
  }

  draw(mesh, focus) {
    this.mesh = mesh;
    this.focus = focus;
    if (!mesh) return;
    const wanted = $("search").value.trim().toLowerCase();
    const { topics, split } = mesh.facts;
    const found = [...topics].filter(([name]) => name.toLowerCase().includes(wanted));
    found.sort(
      ([one, a], [other, b]) => (b.parts > 1) - (a.parts > 1) || b.nodes - a.nodes || one.localeCompare(other, "en", { numeric: true }),
    );
    const listed = found.slice(0, TOPICS_SHOWN);
    if (focus.topic && !listed.some(([name]) => name === focus.topic) && topics.has(focus.topic) && !wanted) {
      listed.push([focus.topic, topics.get(focus.topic)]);
    }
    const state = JSON.stringify([listed.map(([name, one]) => [name, one.nodes, one.parts]), focus.topic, split]);
    if (state === this.drawn) return;
    this.drawn = state;
    this.shown = [null, ...listed.map(([name]) => name)];
    const every = this.#row(null, `All topics`, mesh.nodes.size ? plural(mesh.facts.living, "node") : "", false);
    const rows = listed.map(([name, one]) =>
      this.#row(name, name, one.parts > 1 ? `${one.parts} parts` : String(one.nodes), one.parts > 1),
    );
    $("topic-list").replaceChildren(every, ...rows);
    $("topics-count").textContent = topics.size ? String(topics.size) : "";
    const left = found.length - listed.length;
    $("topics-more").textContent = left > 0 ? `and ${left.toLocaleString("en")} more: search` : found.length || !wanted ? "" : "no such topic";
  }

  #row(topic, text, told, isSplit) {
    const isChosen = topic === this.focus.topic;
    const id = `topic-${topic === null ? "all" : this.shown.indexOf(topic)}`;
    if (isChosen) $("topic-list").setAttribute("aria-activedescendant", id);
    return h(
      "li",
      {
        id,
        role: "option",
        "aria-selected": isChosen ? "true" : "false",
        class: `${topic === null ? "all" : ""}${isSplit ? " split" : ""}`,
        title: text,
        onclick: () => this.choose(topic),
      },
      h("span", { class: "text" }, text),
      h("span", { class: "count" }, told),
    );
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e6, End: 1e6 }[event.key];
    if (step === undefined || !this.shown.length) return;
    event.preventDefault();
    const index = Math.max(0, this.shown.indexOf(this.focus.topic));
    this.choose(this.shown[Math.max(0, Math.min(this.shown.length - 1, index + step))]);
    document.querySelector('#topic-list [aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }
}

export class Details {
  constructor(chooseNode, chooseTopic) {
    this.chooseNode = chooseNode;
    this.chooseTopic = chooseTopic;
    this.idle = [...$("details-body").childNodes];
    this.drawn = "";
  }

  draw(mesh, focus, now) {
    const node = focus.node && mesh.nodes.get(focus.node);
    if (!node) {
      if (this.drawn) $("details-body").replaceChildren(...this.idle);
      $("details-title").textContent = "Node";
      this.drawn = "";
      return;
    }
    const peers = [...(mesh.facts.peers.get(node.name) ?? [])].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
    const age = Math.floor(Math.max(0, now - node.since_ms) / 1000);
    const state = JSON.stringify([node, [...node.topics], peers, age, focus.topic]);
    if (state === this.drawn) return;
    const isSame = this.drawnName === node.name;
    this.drawn = state;
    this.drawnName = node.name;
    $("details-title").textContent = node.name;
    const active = isSame ? document.activeElement?.dataset?.key : undefined;
    $("details-body").replaceChildren(
      h("p", { class: "state" }, h("span", { class: `pill ${node.state}` }, node.state), ` for ${duration(age * 1000)}`),
      ...(node.complaints?.length ? [h("ul", { class: "complaints" }, ...node.complaints.map((text) => h("li", {}, text)))] : []),
      this.#numbers(node, peers),
      h("h3", {}, `Links `, h("span", { class: "count" }, String(peers.length))),
      h("ul", { class: "peers" }, ...peers.map(([peer, how]) => this.#peer(mesh, node, peer, how))),
      h("h3", {}, "Topics ", h("span", { class: "count" }, String(node.topics.size))),
      this.#topics(mesh, node, focus),
    );
    if (active) [...document.querySelectorAll("#details-body [data-key]")].find((one) => one.dataset.key === active)?.focus();
  }

  #numbers(node, peers) {
    const told = { degree: peers.length, clients: node.clients, ...node.counters };
    const names = { not_acknowledged: "not acknowledged", pushes: "messages in" };
    const rows = Object.entries(told).filter(([key, value]) => value !== undefined && !(["lost", "bugs", "not_acknowledged"].includes(key) && !value));
    return h(
      "dl",
      { class: "numbers" },
      ...rows.map(([key, value]) =>
        h("div", { class: ["lost", "bugs", "not_acknowledged"].includes(key) ? "bad" : "" }, h("dt", {}, names[key] ?? key), h("dd", {}, Number(value).toLocaleString("en"))),
      ),
    );
  }

  #peer(mesh, node, peer, how) {
    const other = mesh.nodes.get(peer);
    const shared = other ? [...node.topics].filter((topic) => other.topics.has(topic)).length : 0;
    const isDown = other && !LIVING.has(other.state);
    return h(
      "li",
      {},
      h("button", { type: "button", class: isDown || how === "broken" ? "gone" : "", "data-key": `peer ${peer}`, onclick: () => this.chooseNode(peer) }, peer),
      h("span", { class: "count" }, isDown ? other.state : `${shared} shared`),
    );
  }

  #topics(mesh, node, focus) {
    const all = [...node.topics].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    const chips = all.slice(0, CHIPS_SHOWN).map((topic) => {
      const isSplit = (mesh.facts.topics.get(topic)?.parts ?? 1) > 1;
      const fields = { type: "button", class: `chip${isSplit ? " split" : ""}`, title: topic, "data-key": `topic ${topic}`, "aria-pressed": topic === focus.topic ? "true" : "false" };
      return h("button", { ...fields, onclick: () => this.chooseTopic(topic === focus.topic ? null : topic) }, topic);
    });
    const left = all.length - chips.length;
    return h("div", { class: "chips" }, ...chips, left > 0 ? h("span", { class: "quiet" }, `and ${left} more`) : null);
  }
}

// What is said of a repair: while it goes on, when it is over, and what follows the name of whom it is about.
const MENDS = {
  crash: ["repairs", "repaired", "’s crash"],
  leave: ["repairs", "repaired", "’s leave"],
  join: ["links", "linked", " (joins)"],
  relink: ["links again to", "linked again to", ""],
  subscribe: ["joins topics", "joined topics", null],
  unsubscribe: ["leaves topics", "left topics", null],
};

export class Log {
  constructor(chooseNode, describe) {
    this.chooseNode = chooseNode;
    this.describe = describe;
    this.began = new Map(); // a repair that goes on -> its row
  }

  clear() {
    this.began.clear();
    $("log").replaceChildren();
  }

  /** Tells what kind of mark the event is on the charts, if it is one. */
  add(kind, data) {
    if (kind === "node") return this.#node(data);
    if (kind === "mend") return this.#mend(data);
    if (kind === "fault") this.#row(data, "fault", [data.text]);
    return null;
  }

  #node(data) {
    const texts = {
      up: [" is up"],
      joining: [" starts and joins"],
      leaving: [" leaves in order"],
      down: [" is down"],
      left: [" has left"],
      silent: [" does not answer"],
    };
    if (!texts[data.state] || !data.is_news) return null;
    this.#row(data, data.state, [this.#name(data.name), ...texts[data.state]]);
    return data.state === "down" || data.state === "silent" ? "crash" : null;
  }

  #mend(data) {
    const key = `${data.by}/${data.number}`;
    const [goes, over, rest] = MENDS[data.cause] ?? ["repairs", "repaired", ` (${data.cause})`];
    const about = rest === null ? [] : [" ", this.#name(data.node), rest];
    if (data.state === "began") {
      this.began.set(key, this.#row(data, "mending", [this.#name(data.by), ` ${goes}`, ...about], "…"));
      return null;
    }
    this.began.get(key)?.remove();
    this.began.delete(key);
    this.#row(data, "mended", [this.#name(data.by), ` ${over}`, ...about], duration(data.ms ?? 0));
    return data.cause === "crash" || data.cause === "leave" ? "mended" : null;
  }

  #name(name) {
    return h("button", { type: "button", class: "plain", onclick: () => this.chooseNode(name) }, name);
  }

  #row(data, kind, parts, took = "") {
    const when = h("time", {}, this.describe(data.at_ms));
    const row = h("li", { class: kind }, when, h("i", { "aria-hidden": "true" }), h("span", {}, ...parts), h("b", {}, took));
    $("log").prepend(row);
    while ($("log").children.length > LOG_MAX) $("log").lastElementChild.remove();
    return row;
  }
}
