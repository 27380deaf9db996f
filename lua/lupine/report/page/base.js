// What all views share: the data, numbers as text, elements, colours, tables.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const R = DATA.report;
const VIEWS = []; // {name, title, draw(section)}

const group = n => Math.round(n).toLocaleString("en-US");
const bytes = n => {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (Math.abs(n) >= size) return (n / size).toFixed(n / size < 10 ? 2 : 1) + " " + unit;
  return group(n) + " B";
};
const percent = x => (100 * x).toFixed(1) + " %";
const time = cycles => {
  const s = cycles / R.clock_hz;
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["\u00b5s", 1e-6]])
    if (s >= size) return (s / size).toPrecision(4) + " " + unit;
  return (s * 1e9).toPrecision(4) + " ns";
};

// An element: attributes (on… are handlers), children that are elements or texts.
function el(name, attrs, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attrs || {}))
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v !== undefined && v !== null && v !== false) e.setAttribute(k, v === true ? "" : v);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}
const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name);
const SERIES = ["#3f72d8", "#d8663f", "#2d8f5b", "#b38a12", "#2a97ad", "#b0357f", "#7a4fc9",
  "#8c6d4a", "#5b677c", "#6f9c2c", "#c2505f", "#44766b", "#d99a6c", "#6f8fe0", "#c98fd0", "#9ab85a"];

// Rows of a column-wise list: {keys, columns, strings, text: keys whose values name strings}.
function unpack(list) {
  const text = new Set(list.text), n = list.columns.length ? list.columns[0].length : 0;
  return Array.from({ length: n }, (_, i) => Object.fromEntries(list.keys.map((k, c) =>
    [k, text.has(k) ? list.strings[list.columns[c][i]] : list.columns[c][i]])));
}
// IPUs with memory, as numbers.
const ipus = (r = R) => Object.keys(r.memory).map(Number).sort((a, b) => a - b);

const NODES = unpack(DATA.nodes);
const NODE = new Map(NODES.map(n => [(n.update ? "u" : "m") + n.node, n]));
const place = n => n.file ? n.file + ":" + n.line : "";

// A table that is sorted by a click on a head and shows so many rows at first.
// columns: {title, value(row), text, show(value, row)}
function table(rows, columns, options = {}) {
  const state = { by: options.by ?? -1, down: true, shown: options.shown || 100 };
  const body = el("tbody"), more = el("p"), heads = columns.map((c, i) => {
    const b = el("button", { type: "button", onclick: () => {
      state.down = state.by === i ? !state.down : !c.text;
      state.by = i;
      fill();
    } }, c.title);
    return el("th", { scope: "col", class: c.text ? "text" : null }, b);
  });
  function fill() {
    const c = columns[state.by];
    let list = rows;
    if (c)
      list = [...rows].sort((a, b) => {
        const x = c.value(a), y = c.value(b);
        return (c.text ? String(x).localeCompare(String(y)) : x - y) * (state.down ? -1 : 1);
      });
    heads.forEach((h, i) => h.setAttribute("aria-sort",
      i !== state.by ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...list.slice(0, state.shown).map(row => el("tr", {}, ...columns.map(k => {
      const v = k.value(row);
      return el("td", { class: k.text ? "text" : null }, k.show ? k.show(v, row)
        : typeof v === "number" ? group(v) : v ?? "");
    }))));
    const left = list.length - state.shown;
    more.replaceChildren(left > 0 ? el("button", { type: "button", class: "button",
      onclick: () => { state.shown *= 5; fill(); } }, `${group(left)} more rows`) : "");
  }
  fill();
  const box = el("div", {}, el("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": options.label || "table" },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body)), more);
  box.refill = list => { rows = list; fill(); };
  return box;
}

const card = (title, value, note) => el("div", { class: "card" }, el("span", {}, title),
  el("b", {}, value), note ? el("span", {}, note) : null);

// A bar of parts {name, value, color}, and its key.
function bar(parts, show) {
  const all = parts.reduce((s, p) => s + p.value, 0) || 1;
  parts = parts.filter(p => p.value > 0);
  return el("div", {}, el("div", { class: "bar", role: "img", "aria-label": parts.map(p =>
    `${p.name} ${percent(p.value / all)}`).join(", ") }, ...parts.map(p =>
    el("i", { style: `width:${100 * p.value / all}%;background:${p.color}`,
      title: `${p.name}: ${show(p.value)}` }))),
  el("div", { class: "key" }, ...parts.map(p => el("span", {},
    el("i", { style: "background:" + p.color }), `${p.name} ${show(p.value)} (${
      percent(p.value / all)})`))));
}

// A curve by dygraphs; redrawn when the colours change. rows: [[x, y, …], …]
const CURVES = [];
function curve(box, rows, labels, options) {
  const legend = el("div", { class: "key", "aria-hidden": true });
  box.parentElement.append(legend);
  const make = () => new Dygraph(box, rows, { labels, legend: "always", strokeWidth: 1.4,
    labelsDiv: legend,
    axisLineColor: color("line"), gridLineColor: color("line"), labelsKMB: true,
    animatedZooms: false, ...options() });
  const made = { box, graph: make(), again() { made.graph.destroy(); made.graph = make(); },
    remove() { made.graph.destroy(); legend.remove(); CURVES.splice(CURVES.indexOf(made), 1); } };
  CURVES.push(made);
  return made;
}

function choose(label, values, onchange) {
  const s = el("select", { onchange: () => onchange(s.value) },
    ...values.map(([v, text]) => el("option", { value: v }, text)));
  return el("label", {}, label + " ", s);
}
