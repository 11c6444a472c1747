// Small helpers. Whatever a mesh says is put in as text: names of topics and nodes may be anything.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** h("button", {class: "x", onclick: f}, "text", child) */
export function h(tag, fields = {}, ...children) {
  const made = document.createElement(tag);
  set(made, fields);
  made.append(...children.filter((one) => one !== null && one !== undefined));
  return made;
}

export function s(tag, fields = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  set(made, fields);
  made.append(...children);
  return made;
}

export function set(element, fields) {
  for (const [name, value] of Object.entries(fields)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === false || value === null || value === undefined) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export function figure(value) {
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  return value % 1 && value < 10 ? value.toFixed(1) : String(Math.round(value));
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  return minutes < 60 ? `${minutes} min ${Math.floor((ms % 60000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
