// The mesh, as events tell it (live/view.py says which there are). No drawing here.

const MEMBERS = new Set(["up", "leaving"]);
export const LIVING = new Set(["up", "leaving", "joining"]);

export const linkKey = (u, v) => `${u}\u0000${v}`;

export class Mesh {
  constructor() {
    this.nodes = new Map(); // name -> {name, place, state, topics: Set, incarnation, since_ms, clients, counters, complaints}
    this.links = new Map(); // key -> {key, u, v, state}
    this.version = 0;
    this.reset = 0; // grows whenever everything may be different, so that nothing is shown as news
    this.overlay = "";
    this.troubles = {}; // admin port -> why it has not answered
    this.mending = new Map(); // "by/number" -> the event that began it
    this.cached = { version: -1 };
  }

  load(whole) {
    this.nodes = new Map(whole.nodes.map((one) => [one.name, { ...one, topics: new Set(one.topics) }]));
    this.links = new Map(whole.links.map(([u, v, state]) => [linkKey(u, v), { key: linkKey(u, v), u, v, state }]));
    this.mending = new Map(whole.mending.map((mend) => [`${mend.by}/${mend.number}`, mend]));
    this.overlay = whole.overlay;
    this.troubles = whole.troubles ?? {};
    this.version++;
    this.reset++;
  }

  apply(kind, data) {
    if (kind === "node") this.#node(data);
    else if (kind === "link") this.#link(data);
    else if (kind === "mend") this.#mend(data);
    else if (kind === "sample") this.#numbers(data.numbers);
    else return;
    if (kind !== "sample") this.version++;
  }

  #node(data) {
    if (data.state === "forgotten") {
      this.nodes.delete(data.name);
      return;
    }
    const before = this.nodes.get(data.name) ?? { clients: 0, counters: {} };
    this.nodes.set(data.name, { ...before, ...data, topics: new Set(data.topics) });
    if (!LIVING.has(data.state)) {
      for (const [key, mend] of this.mending) if (mend.by === data.name) this.mending.delete(key);
    }
  }

  #link({ u, v, state }) {
    const key = linkKey(u, v);
    if (state === "gone") this.links.delete(key);
    else this.links.set(key, { key, u, v, state });
  }

  #mend(data) {
    const key = `${data.by}/${data.number}`;
    if (data.state === "began") this.mending.set(key, data);
    else this.mending.delete(key);
  }

  #numbers(numbers) {
    for (const [name, told] of Object.entries(numbers ?? {})) {
      const node = this.nodes.get(name);
      if (!node) continue;
      if (String(node.complaints ?? "") !== String(told.complaints ?? "")) this.version++; // a dot changes its look
      Object.assign(node, told);
    }
  }

  // What follows from it, computed once per version.

  get facts() {
    if (this.cached.version !== this.version) this.cached = { version: this.version, ...facts(this) };
    return this.cached;
  }

  /** Which part of a topic each of its nodes is in: the largest part is 0. */
  parts(topic) {
    const peers = new Map();
    for (const node of this.nodes.values()) {
      if (MEMBERS.has(node.state) && node.topics.has(topic)) peers.set(node.name, []);
    }
    let links = 0;
    for (const { u, v, state } of this.links.values()) {
      if (state === "up" && peers.has(u) && peers.has(v)) {
        peers.get(u).push(v);
        peers.get(v).push(u);
        links++;
      }
    }
    const found = [];
    const seen = new Set();
    for (const start of peers.keys()) {
      if (seen.has(start)) continue;
      const part = [start];
      seen.add(start);
      for (const name of part) {
        for (const peer of peers.get(name)) {
          if (!seen.has(peer)) {
            seen.add(peer);
            part.push(peer);
          }
        }
      }
      found.push(part);
    }
    found.sort((one, other) => other.length - one.length);
    const of = new Map();
    found.forEach((part, index) => part.forEach((name) => of.set(name, index)));
    return { of, sizes: found.map((part) => part.length), links };
  }
}

function facts(mesh) {
  const names = new Map(); // name -> its place in the arrays
  const peers = new Map(); // name -> [[peer, state]]
  const topics = new Map(); // topic -> {index, nodes, parts}
  for (const node of mesh.nodes.values()) {
    peers.set(node.name, []);
    if (!MEMBERS.has(node.state)) continue;
    names.set(node.name, names.size);
    for (const topic of node.topics) {
      const found = topics.get(topic);
      if (found) found.nodes++;
      else topics.set(topic, { index: topics.size, nodes: 1, parts: 0 });
    }
  }
  const width = names.size;
  const parent = new Int32Array(width * topics.size).map((_, index) => index);
  const root = (one) => {
    while (parent[one] !== one) {
      parent[one] = parent[parent[one]];
      one = parent[one];
    }
    return one;
  };
  for (const found of topics.values()) found.parts = found.nodes;
  let up = 0;
  for (const { u, v, state } of mesh.links.values()) {
    peers.get(u)?.push([v, state]);
    peers.get(v)?.push([u, state]);
    if (state !== "up") continue;
    up++;
    if (!names.has(u) || !names.has(v)) continue;
    const [few, many] = [mesh.nodes.get(u).topics, mesh.nodes.get(v).topics].sort((a, b) => a.size - b.size);
    for (const topic of few) {
      if (!many.has(topic)) continue;
      const found = topics.get(topic);
      const one = root(found.index * width + names.get(u));
      const other = root(found.index * width + names.get(v));
      if (one !== other) {
        parent[one] = other;
        found.parts--;
      }
    }
  }
  let split = 0;
  for (const found of topics.values()) if (found.parts > 1) split++;
  let living = 0;
  for (const node of mesh.nodes.values()) if (LIVING.has(node.state)) living++;
  return { peers, topics, split, links: up, living };
}
