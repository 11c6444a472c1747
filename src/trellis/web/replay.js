// A recorded run: the same events as of a running mesh, and a time that can be set.

import { Mesh } from "./mesh.js";

const CHECKPOINT = 500; // events between two copies of the whole state
const LOGGED = 100; // rows that are there after a jump

export class Replay {
  /** `told(kind, data)` is called for what happens while the run plays; `jumped(events)` after a jump. */
  constructor(film, { told, jumped }) {
    this.film = film;
    this.told = told;
    this.jumped = jumped;
    this.mesh = new Mesh();
    this.mesh.overlay = film.overlay;
    this.index = 0; // events that have happened
    this.time = 0;
    this.checkpoints = [];
    film.events.forEach(([kind, data], index) => {
      if (index % CHECKPOINT === 0) this.#keep(index);
      this.mesh.apply(kind, data);
    });
    this.checkpoints.push({ index: film.events.length, ...this.#copy() });
    this.#restore(0);
  }

  /** To a time; a small step forward is played, anything else is a jump. */
  seek(time, isPlaying = false) {
    const goal = this.#after(time);
    this.time = time;
    if (isPlaying && goal >= this.index) {
      while (this.index < goal) this.#step(true);
      return;
    }
    if (goal === this.index) return;
    this.#restore(goal);
    while (this.index < goal) this.#step(false);
    const logged = this.film.events.slice(0, goal).filter(([kind]) => kind !== "link");
    this.jumped(logged.slice(-LOGGED));
  }

  #step(isTold) {
    const [kind, data] = this.film.events[this.index++];
    this.mesh.apply(kind, data);
    if (isTold) this.told(kind, data);
  }

  /** How many events have happened at a time. */
  #after(time) {
    let [low, high] = [0, this.film.events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.film.events[middle][1].at_ms <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #copy() {
    return { nodes: new Map(this.mesh.nodes), links: new Map(this.mesh.links), mending: new Map(this.mesh.mending) };
  }

  #keep(index) {
    this.checkpoints.push({ index, ...this.#copy() });
  }

  #restore(goal) {
    const found = this.checkpoints.findLast((one) => one.index <= goal);
    this.mesh.nodes = new Map(found.nodes);
    this.mesh.links = new Map(found.links);
    this.mesh.mending = new Map(found.mending);
    this.mesh.version++;
    this.mesh.reset++;
    this.index = found.index;
  }
}
