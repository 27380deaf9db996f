// Comparison with a second report, and the start of the page.
const FIGURES = [["samples a second", r => r.samples_per_second, group, 1],
  ["cycles of a call", r => r.cycles, group, -1], ["seconds of a call", r => r.seconds,
    s => s.toPrecision(4), -1], ["IPUs", r => r.ipus * r.replicas, group, 0],
  ["micro-batches an update", r => r.micro_batches, group, 0],
  ["IPUs computing", r => r.pipeline_efficiency, percent, 1],
  ["fullest tile", r => Math.max(...Object.values(r.memory).map(m => m.max_tile_including_gaps)),
    bytes, -1]];

// Cycles of a micro-batch by stage, of both.
function stages(other) {
  const of = r => new Map(r.stages.map(s => [s.stage, s.forward_cycles + s.backward_cycles]));
  const a = of(R), b = of(other);
  return [...new Set([...a.keys(), ...b.keys()])].map(stage => ({ stage, a: a.get(stage) || 0,
    b: b.get(stage) || 0 }));
}

// What an IPU holds at each step, this report and the other; steps are those of each.
function live(doc) {
  const mine = DATA.liveness, theirs = doc.liveness?.ipus || {};
  const list = Object.keys(mine).filter(i => theirs[i]).map(Number).sort((a, b) => a - b);
  if (!list.length) return el("p", {}, "The two have no IPU with steps in common.");
  const chart = el("div", { class: "chart", role: "img", "aria-label":
    "memory over steps of both reports" });
  let drawn;
  const held = (l, m) => l.bytes.map((b, k) => m.always_live + b + l.temporary[k]);
  function show(i) {
    const a = held(mine[i], R.memory[i]), b = held(theirs[i], doc.report.memory[i]);
    const rows = Array.from({ length: Math.max(a.length, b.length) }, (_, k) => [k, a[k] ?? null,
      b[k] ?? null]);
    drawn?.remove();
    drawn = curve(chart, rows, ["step", "this report", "the other"], () => ({ includeZero: true,
      stepPlot: true, colors: [color("compute"), color("copy")] }));
  }
  const box = el("div", {}, el("div", { class: "filters" }, choose("IPU", list.map(i =>
    [i, "IPU " + i]), v => show(+v))), el("div", { class: "panel" }, chart));
  queueMicrotask(() => show(list[0])); // curves are drawn where they have a size
  return box;
}

function against(doc) {
  const other = doc.report;
  const box = el("div"), sum = (r, k) => Object.values(r.memory).reduce((s, m) =>
    s + (m.categories[k] || 0), 0);
  const change = (a, b, good) => {
    const d = a ? b / a - 1 : 0;
    return el("span", { class: d * good > 0 ? "down" : d * good < 0 ? "up" : null },
      (d >= 0 ? "+" : "") + percent(d));
  };
  const rows = FIGURES.map(([name, f, show, good]) => ({ name, a: f(R), b: f(other), show, good }));
  for (const k of Object.keys(R.memory[ipus()[0]].categories))
    rows.push({ name: words(k) + ", all IPUs", a: sum(R, k), b: sum(other, k), show: bytes,
      good: -1 });
  for (const i of ipus().filter(i => other.memory[i]))
    rows.push({ name: `fullest tile of IPU ${i}`, a: R.memory[i].max_tile_including_gaps,
      b: other.memory[i].max_tile_including_gaps, show: bytes, good: -1 });
  const columns = [{ title: "figure", value: r => r.name, text: true },
    { title: "this report", value: r => r.a, show: (v, r) => r.show(v) },
    { title: "the other", value: r => r.b, show: (v, r) => r.show(v) },
    { title: "change", value: r => r.a ? r.b / r.a : 0, show: (_, r) => change(r.a, r.b, r.good) }];
  box.append(table(rows, columns, { label: "comparison of two reports" }));
  const ops = new Map(R.operators.map(o => [o.name, { name: o.name, a: o.cycles, b: 0 }]));
  for (const o of other.operators) {
    if (!ops.has(o.name)) ops.set(o.name, { name: o.name, a: 0, b: 0 });
    ops.get(o.name).b = o.cycles;
  }
  for (const o of ops.values()) o.show = group, o.good = -1;
  columns[0] = { title: "kind of operator, cycles of a call", value: r => r.name, text: true };
  box.append(el("h2", {}, "Cycles of a call"), el("div", { class: "two" },
    el("div", { class: "panel" }, el("h3", {}, "this report"), bar(shares(), time)),
    el("div", { class: "panel" }, el("h3", {}, "the other"), bar(shares(other), time))));
  box.append(el("h2", {}, "Memory over steps"), live(doc));
  box.append(el("h2", {}, "Stages"), table(stages(other), [
    { title: "stage", value: s => s.stage }, { title: "cycles of this", value: s => s.a },
    { title: "of the other", value: s => s.b },
    { title: "change", value: s => s.a ? s.b / s.a : 0, show: (_, s) => change(s.a, s.b, -1) }],
  { label: "comparison of stages" }));
  box.append(el("h2", {}, "Operators"), table([...ops.values()], columns, { by: 1,
    label: "comparison of operators" }));
  return box;
}

VIEWS.push({ name: "compare", title: "Compare", draw(section) {
  const result = el("div", { role: "status" });
  const file = el("input", { type: "file", accept: ".json", "aria-label": "another report",
    onchange: async () => {
      try {
        const doc = JSON.parse(await file.files[0].text());
        CURVES.filter(c => result.contains(c.box)).forEach(c => c.remove());
        result.replaceChildren(against(doc));
      } catch (e) {
        result.replaceChildren(el("p", { class: "up" }, "That file is no report: " + e.message));
      }
    } });
  section.append(el("p", {}, "Another report, as report:save(FILE) writes it, profile.json or " +
    "report.json. It stays on this machine."), el("div", { class: "filters" }, file), result);
  if (DATA.other) result.append(against(DATA.other));
} });

function start() {
  const tabs = new Map(), nav = document.querySelector("nav"), main = document.querySelector("main");
  const drawn = new Set();
  function show(name) {
    if (!tabs.has(name)) name = VIEWS[0].name;
    for (const v of VIEWS) {
      const { tab, section } = tabs.get(v.name), on = v.name === name;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      section.hidden = !on;
      if (on && !drawn.has(name)) drawn.add(name), v.draw(section);
    }
    history.replaceState(null, "", "#" + name);
  }
  VIEWS.forEach((v, i) => {
    const tab = el("button", { type: "button", role: "tab", id: "tab-" + v.name,
      "aria-controls": "view-" + v.name, onclick: () => show(v.name), onkeydown: e => {
        const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (!d) return;
        const next = VIEWS[(i + d + VIEWS.length) % VIEWS.length].name;
        show(next), tabs.get(next).tab.focus();
      } }, v.title);
    const section = el("section", { role: "tabpanel", id: "view-" + v.name,
      "aria-labelledby": "tab-" + v.name, hidden: true });
    tabs.set(v.name, { tab, section });
    nav.append(tab), main.append(section);
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = theme => {
    document.documentElement.dataset.theme = theme;
    CURVES.forEach(c => c.again());
  };
  document.getElementById("theme").addEventListener("click", () =>
    paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
  paint(dark.matches ? "dark" : "light");
  show(location.hash.slice(1));
}
start();
