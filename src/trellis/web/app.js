// Wires the page: where events come from, what is chosen, and when to draw.

import { Charts } from "./charts.js";
import { Circle } from "./circle.js";
import { $, duration, h, plural, set } from "./dom.js";
import { LIVING, Mesh } from "./mesh.js";
import { Details, Log, Topics } from "./panels.js";
import { Replay } from "./replay.js";

const SERIES_MAX = 900;
const MARKS_MAX = 300;
const RETRY_MS = 3000;
const focus = { topic: null, node: null, parts: null };
let mesh = new Mesh();
let isReplay = false;
let isConnected = true;
let clock_ms = 0; // of the mesh, or of the run
let waiting = false;
let charts = null;

const describe = (at_ms) =>
  isReplay ? `${(at_ms / 1000).toFixed(1)} s` : new Date(at_ms).toLocaleTimeString("en-GB", { hour12: false });
const circle = new Circle($("circle"), chooseNode);
const topics = new Topics(chooseTopic);
const details = new Details(chooseNode, chooseTopic);
const log = new Log(chooseNode, (at_ms) => describe(at_ms));

function chooseNode(name) {
  focus.node = focus.node === name ? null : name;
  redraw();
}

function chooseTopic(name) {
  focus.topic = name;
  redraw();
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

function draw() {
  if (focus.node !== null && !mesh.nodes.has(focus.node)) focus.node = null;
  focus.parts = focus.topic === null ? null : mesh.parts(focus.topic);
  circle.draw(mesh, focus);
  topics.draw(mesh, focus);
  details.draw(mesh, focus, clock_ms);
  charts?.draw();
  drawHeader();
  drawFocus();
  document.body.dataset.drawn = String(mesh.version);
}

function drawHeader() {
  const { living, links, split, topics: known } = mesh.facts;
  const down = [...mesh.nodes.values()].filter((node) => !LIVING.has(node.state) && node.state !== "unknown").length;
  const unwell = [...mesh.nodes.values()].filter((node) => node.complaints?.length && node.state === "up");
  let [state, text] = ["good", `Every topic is connected`];
  if (!isConnected) [state, text] = ["lost", "The dashboard does not answer; trying again"];
  else if (!living) [state, text] = ["lost", isReplay ? "No node is up" : `No node answers${firstTrouble()}`];
  else if (split) [state, text] = ["bad", split === 1 ? "1 topic is split" : `${split.toLocaleString("en")} topics are split`];
  else if (unwell.length) [state, text] = ["bad", unwell.length === 1 ? `${unwell[0].name} is not healthy` : `${unwell.length.toLocaleString("en")} nodes are not healthy`];
  else if (!known.size) [state, text] = ["lost", "Nobody subscribes to anything"];
  set($("health"), { class: `health ${state}` });
  if ($("health").lastElementChild.textContent !== text) $("health").lastElementChild.textContent = text;
  const mending = mesh.mending.size;
  const told = [[living, "nodes"], [links, "links"], [known.size, "topics"]];
  if (down) told.push([down, "down", "bad"]);
  if (mending) told.push([mending, mending === 1 ? "repair" : "repairs", "mending"]);
  $("totals").replaceChildren(
    ...told.map(([value, name, kind]) => h("div", { class: kind ?? "" }, h("dd", {}, value.toLocaleString("en")), h("dt", {}, name))),
  );
}

/** Why the first of the admin ports has not answered: without a node there is nothing else to show. */
function firstTrouble() {
  const [source, why] = Object.entries(mesh.troubles)[0] ?? [];
  return source ? `: ${source}: ${why}` : "";
}

function drawFocus() {
  if (focus.topic === null) {
    $("focus").replaceChildren(h("b", {}, "All topics"), ` · ${plural(mesh.facts.links, "link")}`);
    return;
  }
  const { sizes, links } = focus.parts;
  const nodes = sizes.reduce((sum, size) => sum + size, 0);
  const shape = sizes.length > 1 ? `split into ${sizes.length} parts: ${sizes.slice(0, 6).join(" + ")}${sizes.length > 6 ? " + …" : ""}` : "connected";
  $("focus").replaceChildren(
    h("b", {}, focus.topic.length > 40 ? `${focus.topic.slice(0, 39)}…` : focus.topic),
    ` · ${plural(nodes, "node")}, ${plural(links, "link")} · `,
    h("span", { class: sizes.length > 1 ? "bad" : "good" }, shape),
    " ",
    h("button", { type: "button", class: "plain", onclick: () => chooseTopic(null) }, "show all"),
  );
}

/** Something has happened just now. */
function happen(kind, data) {
  const mark = log.add(kind, data);
  if (mark) addMark(mark, data);
  redraw();
  requestAnimationFrame(() => {
    if (kind === "node" && !data.is_news) return;
    if (kind === "node" && (data.state === "down" || data.state === "silent")) circle.ripple(data.name, "crash");
    else if (kind === "node" && data.state === "joining") circle.ripple(data.name, "join");
    else if (kind === "mend" && data.state === "ended" && mark) circle.ripple(data.by, "mended");
  });
}

function addMark(kind, data) {
  charts.marks.push({ kind, at_ms: data.at_ms });
  if (charts.marks.length > MARKS_MAX) charts.marks.shift();
}

// A running mesh

function live() {
  $("about").textContent = "live";
  charts = new Charts($("charts"), { describe });
  listen();
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("mesh", (event) => {
    const whole = JSON.parse(event.data);
    isConnected = true;
    clock_ms = whole.at_ms;
    mesh.load(whole);
    charts.rows = whole.series;
    charts.marks = [];
    log.clear();
    for (const [kind, data] of whole.past) {
      const mark = log.add(kind, data);
      if (mark) addMark(mark, data);
    }
    $("about").textContent = `live · ${mesh.overlay || "no overlay yet"}`;
    document.body.dataset.ready = "live";
    redraw();
  });
  for (const kind of ["node", "link", "mend"]) {
    source.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      mesh.apply(kind, data);
      happen(kind, data);
    });
  }
  source.addEventListener("sample", (event) => {
    const { numbers, troubles, ...row } = JSON.parse(event.data);
    clock_ms = row.at_ms;
    mesh.apply("sample", { numbers });
    mesh.troubles = troubles ?? {};
    charts.rows.push(row);
    if (charts.rows.length > SERIES_MAX) charts.rows.shift();
    redraw();
  });
  source.addEventListener("error", () => {
    isConnected = false;
    redraw();
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS); // refused: it does not try again by itself
  });
}

// A recorded run

function replay(film) {
  isReplay = true;
  $("about").textContent = `a recorded run of ${film.overlay}, seed ${film.seed}`;
  const hasDeliveries = film.series.some((row) => row.delivered_s > 0);
  charts = new Charts($("charts"), { isReplay, hasDeliveries, describe, seek: (time) => jump(time) });
  charts.rows = film.series;
  charts.end_ms = film.end_ms;
  for (const [kind, data] of film.events) {
    if (kind === "node" && data.state === "down") addMark("crash", data);
  }
  const run = new Replay(film, {
    told: (kind, data) => happen(kind, data),
    jumped: (events) => {
      log.clear();
      for (const [kind, data] of events) log.add(kind, data);
    },
  });
  mesh = run.mesh;
  set($("slider"), { max: film.end_ms, step: Math.max(1, Math.round(film.end_ms / 2000)) });
  $("time").hidden = false;
  document.body.classList.add("replay");
  let playing = null;

  function show() {
    clock_ms = charts.now = run.time;
    $("slider").value = String(run.time);
    $("clock").textContent = duration(run.time);
    set($("slider"), { "aria-valuetext": duration(run.time) });
    redraw();
  }

  function jump(time) {
    run.seek(Math.max(0, Math.min(film.end_ms, time)));
    show();
  }

  function play(isOn) {
    if (isOn === (playing !== null)) return;
    set($("play"), { "aria-label": isOn ? "Pause" : "Play" });
    $("play").textContent = isOn ? "❚❚" : "▶";
    if (!isOn) {
      cancelAnimationFrame(playing);
      playing = null;
      return;
    }
    if (run.time >= film.end_ms) jump(0);
    let before = performance.now();
    const step = (now) => {
      const passed = Math.min(now - before, 250) * Number($("speed").value);
      before = now;
      run.seek(Math.min(film.end_ms, run.time + passed), true);
      show();
      playing = run.time < film.end_ms ? requestAnimationFrame(step) : null;
      if (playing === null) {
        playing = 0;
        play(false);
      }
    };
    playing = requestAnimationFrame(step);
  }

  $("play").addEventListener("click", () => play(playing === null));
  $("slider").addEventListener("input", () => jump(Number($("slider").value)));
  jump(film.end_ms);
  document.body.dataset.ready = "replay";
}

// Begin

$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select")) {
    event.preventDefault();
    $("search").focus();
  }
});

const { mode } = await fetch("mode.json").then((answer) => answer.json());
if (mode === "replay") replay(await fetch("replay.json").then((answer) => answer.json()));
else live();
