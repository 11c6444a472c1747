// The series: small charts that share their time axis. Marks below them are crashes and finished repairs.

import { figure, h, s, set } from "./dom.js";

const HEIGHT = 92;
const [LEFT, RIGHT, TOP, BOTTOM] = [34, 10, 8, 14];
const WINDOW_MS = 300000; // what a running mesh shows

const CHARTS = [
  {
    title: "Degree",
    lines: [["degree_max", "max"], ["degree_mean", "mean"]],
    about: "Links of a node: the most, and the mean",
  },
  {
    title: "Split topics",
    lines: [["split_topics", "split"]],
    about: "Topics whose nodes are not all connected",
    bad: true,
    least: 4,
  },
  {
    title: "Deliveries",
    unit: "/s",
    lines: [["delivered_s", "delivered"]],
    about: "Messages handed over at nodes, each second",
    least: 10,
  },
  {
    title: "Published",
    unit: "/s",
    lines: [["published_s", "in"], ["acknowledged_s", "acknowledged"]],
    about: "Publications taken in and acknowledged, each second",
    least: 10,
  },
];
const SENT = { title: "Messages", unit: "/s", lines: [["sent_s", "sent"]], about: "Messages that protocols sent, each second", least: 10 };

export class Charts {
  constructor(root, { isReplay = false, hasDeliveries = true, describe, seek }) {
    this.isReplay = isReplay;
    this.describe = describe; // time -> text
    this.rows = [];
    this.marks = [];
    this.now = null;
    const kinds = isReplay ? [CHARTS[0], CHARTS[1], ...(hasDeliveries ? [CHARTS[2]] : []), SENT] : CHARTS;
    this.charts = kinds.map((kind) => this.#make(kind));
    root.replaceChildren(...this.charts.map((chart) => chart.figure));
    for (const chart of this.charts) {
      chart.svg.addEventListener("pointermove", (event) => this.#point(chart, event));
      chart.svg.addEventListener("pointerleave", () => this.#point(null));
      if (seek) chart.svg.addEventListener("click", (event) => seek(this.#time(chart, event)));
    }
    new ResizeObserver(() => this.draw()).observe(root);
  }

  #make(kind) {
    const values = kind.lines.map(() => h("b", {}, "–"));
    const when = h("span", { class: "when quiet" });
    const isAlone = kind.lines.length === 1;
    const names = kind.lines.map(([, name], index) =>
      h("span", { class: `line-${index}${isAlone ? " alone" : ""}` }, isAlone ? "" : `${name} `, values[index]),
    );
    const svg = s("svg", { role: "img", class: "chart", height: HEIGHT });
    const head = h("figcaption", {}, h("h3", {}, kind.title, h("small", {}, kind.unit ?? "")), when, h("p", { class: "names" }, ...names));
    return { kind, values, when, svg, figure: h("figure", { title: kind.about, class: kind.bad ? "warn" : "" }, head, svg) };
  }

  draw() {
    const last = this.rows.at(-1);
    const end = this.isReplay ? this.end_ms : (last?.at_ms ?? 0);
    const begin = this.isReplay ? 0 : end - Math.min(WINDOW_MS, Math.max(60000, end - (this.rows[0]?.at_ms ?? end)));
    this.span = [begin, Math.max(end, begin + 1)];
    for (const chart of this.charts) this.#draw(chart);
  }

  #draw(chart) {
    const { kind, svg } = chart;
    const width = Math.max(120, svg.clientWidth || 240);
    chart.width = width;
    const [begin, end] = this.span;
    const rows = this.rows.filter((row) => row.at_ms >= begin - 2000);
    const most = niceAbove(Math.max(kind.least ?? 2, ...rows.flatMap((row) => kind.lines.map(([key]) => row[key] ?? 0))));
    const x = (time) => LEFT + ((time - begin) / (end - begin)) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const value of [0, most / 2, most]) {
      parts.push(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
      const text = s("text", { class: "axis", x: LEFT - 6, y: y(value), dy: "0.32em", "text-anchor": "end" });
      text.textContent = value >= 1000 ? `${value / 1000}k` : figure(value);
      parts.push(text);
    }
    for (const mark of this.marks) {
      if (mark.at_ms < begin || mark.at_ms > end) continue;
      const at = x(mark.at_ms) + (mark.kind === "crash" ? -1.5 : 1.5); // both can be seen
      parts.push(s("path", { class: `mark ${mark.kind}`, d: `M${at} ${HEIGHT - BOTTOM + 3}v8` }));
    }
    kind.lines.forEach(([key], index) => {
      if (!rows.length) return;
      const points = rows.map((row) => `${x(row.at_ms).toFixed(1)} ${y(row[key] ?? 0).toFixed(1)}`);
      const clipped = points.join("L");
      if (index === kind.lines.length - 1) {
        const [from, to] = [x(rows[0].at_ms), x(rows.at(-1).at_ms)];
        parts.push(s("path", { class: `area line-${index}`, d: `M${from} ${y(0)}L${clipped}L${to} ${y(0)}Z` }));
      }
      parts.push(s("path", { class: `line line-${index}`, d: `M${clipped}` }));
    });
    const when = this.pointed ?? (this.isReplay ? this.now : null);
    const shown = when === null ? rows.at(-1) : nearest(rows, when);
    if (when !== null && shown) {
      parts.push(s("line", { class: "cursor", x1: x(when), x2: x(when), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    set(svg, { viewBox: `0 0 ${width} ${HEIGHT}` });
    svg.replaceChildren(...parts);
    const told = kind.lines.map(([key]) => (shown ? figure(shown[key] ?? 0) : "–"));
    told.forEach((text, index) => (chart.values[index].textContent = text));
    chart.when.textContent = this.pointed ? this.describe(this.pointed) : "";
    chart.figure.classList.toggle("now-bad", Boolean(kind.bad && shown && shown[kind.lines[0][0]] > 0));
    svg.setAttribute("aria-label", `${kind.about}: ${told.join(", ")}`);
  }

  #time(chart, event) {
    const box = chart.svg.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (chart.width - LEFT - RIGHT);
    return this.span[0] + Math.max(0, Math.min(1, part)) * (this.span[1] - this.span[0]);
  }

  #point(chart, event) {
    this.pointed = chart && this.rows.length ? this.#time(chart, event) : null;
    for (const one of this.charts) this.#draw(one);
  }
}

function nearest(rows, time) {
  let best = rows[0];
  for (const row of rows) if (Math.abs(row.at_ms - time) < Math.abs(best.at_ms - time)) best = row;
  return best;
}

function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 3, 4, 6, 8, 10, 20].map((one) => one * power).find((one) => one >= value);
}
