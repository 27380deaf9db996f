// Operators: all of them, and the tree of the program.
const cycles = n => n.cycles;
const OPERATION = [
  { title: "operator", value: n => n.operator, text: true },
  { title: "layer", value: n => n.scope, text: true },
  { title: "script", value: place, text: true },
  { title: "IPU", value: n => n.ipu }, { title: "stage", value: n => n.stage, show: v => v < 0 ? "" : group(v) },
  { title: "pass", value: n => n.update ? "update" : n.backward ? "backward" : "forward",
    text: true },
  { title: "cycles", value: cycles }, { title: "compute", value: n => n.compute },
  { title: "exchange", value: n => n.exchange }, { title: "sync", value: n => n.sync },
  { title: "operations", value: n => n.flops },
  { title: "per cycle", value: n => n.cycles ? n.flops / n.cycles : 0 },
  { title: "elements", value: n => n.elements }];

function totals(key) {
  const sums = new Map();
  for (const n of NODES) {
    const k = key(n) || "(none)", s = sums.get(k) || { name: k, n: 0, cycles: 0, flops: 0 };
    s.n++, s.cycles += n.cycles, s.flops += n.flops;
    sums.set(k, s);
  }
  return [...sums.values()];
}

VIEWS.push({ name: "operations", title: "Operations", draw(section) {
  const filter = { text: "", pass: "", ipu: "" };
  const all = table(NODES, OPERATION, { by: 6, label: "operators" });
  const count = el("span", { class: "soft", role: "status" });
  function apply() {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = NODES.filter(n => (!filter.pass || OPERATION[5].value(n) === filter.pass)
      && (filter.ipu === "" || n.ipu === +filter.ipu) && words.every(w =>
        `${n.operator} ${n.scope} ${place(n)}`.toLowerCase().includes(w)));
    all.refill(kept);
    count.textContent = `${group(kept.length)} operators, ${group(kept.reduce((s, n) =>
      s + n.cycles, 0))} cycles of one execution each`;
  }
  const search = el("input", { type: "search", placeholder: "operator, layer or file",
    "aria-label": "filter", oninput: () => { filter.text = search.value; apply(); } });
  section.append(el("div", { class: "filters" }, search,
    choose("pass", [["", "all"], ["forward", "forward"], ["backward", "backward"],
      ["update", "update"]], v => { filter.pass = v; apply(); }),
    choose("IPU", [["", "all"], ...ipus().map(i => [i, i])], v => { filter.ipu = v; apply(); }),
    count), all);
  if (DATA.nodes.left_out)
    section.append(el("p", { class: "soft" }, `${group(DATA.nodes.left_out)} cheaper operators ` +
      "are left out."));
  const sum = (title, key) => el("div", {}, el("h2", {}, title), table(totals(key), [
    { title: "name", value: s => s.name, text: true }, { title: "operators", value: s => s.n },
    { title: "cycles", value: s => s.cycles }, { title: "operations", value: s => s.flops }],
  { by: 2, shown: 20, label: title }));
  section.append(el("div", { class: "two" }, sum("By kind", n => n.operator),
    sum("By layer", n => n.scope.split("/").slice(0, 3).join("/")), sum("By line", place)));
  section.append(el("h2", {}, "Vertices"), el("p", { class: "soft" },
    `${group(R.vertices)} vertices with ${group(R.edges)} edges in ${group(R.compute_sets)} compute ` +
    "sets of a replica. Cycles are of all tiles and one call; idle are threads without work."),
  table(R.vertex_types, [{ title: "vertex", value: v => v.name, text: true },
    { title: "vertices", value: v => v.vertices }, { title: "edges", value: v => v.edges },
    { title: "state, bytes", value: v => v.bytes }, { title: "cycles", value: v => v.cycles },
    { title: "idle", value: v => v.cycles ? v.idle / v.cycles : 0, show: percent }],
  { by: 4, shown: 30, label: "vertices" }));
  apply();
} });

function leaf(text) { return el("li", {}, el("span", {}, text)); }
// A branch whose children are made when it is first opened.
function branch(text, children, open) {
  const list = el("ul"), d = el("details", { open, ontoggle: () => {
    if (d.open && !list.childElementCount) list.append(...children());
  } }, el("summary", {}, text), list);
  if (open) list.append(...children());
  return el("li", {}, d);
}

function operators(stage, backward) {
  return NODES.filter(n => !n.update && n.stage === stage && !!n.backward === backward)
    .sort((a, b) => a.node - b.node)
    .map(n => leaf(`${n.operator}  ${n.scope}  ${place(n)}  ${group(n.cycles)} cycles`));
}

function entry(e) {
  const text = `IPU ${e.ipu}: ${e.kind.replace("_", " ")}`;
  if (e.kind === "compute")
    return branch(`${text} of stage ${e.stage} ${e.backward ? "backward" : "forward"}, micro-batch ${
      "turn - " + e.offset}, ${group(e.cycles)} cycles`, () => operators(e.stage, e.backward));
  if (e.kind === "update")
    return branch(`${text}, ${group(e.cycles)} cycles`, () => NODES.filter(n => n.update
      && n.ipu === e.ipu).map(n => leaf(`${n.operator}  ${group(n.cycles)} cycles`)));
  return leaf(`${text}${e.kind === "copy" ? " to IPU " + e.to : ""}, ${bytes(e.bytes || 0)}, ${
    group(e.cycles)} cycles${e.beside ? ", beside computing" : ""}`);
}

VIEWS.push({ name: "program", title: "Program", draw(section) {
  const row = r => branch(`${r.kind}, ${group(r.cycles)} cycles`, () => r.entries.map(entry));
  const rows = l => R.schedule.slice(l.first_row - 1, l.first_row - 1 + l.rows).map(row);
  const loop = l => l.count === 1 ? rows(l) : [branch(`Repeat ${group(l.count)} times`,
    () => rows(l), true)];
  const once = R.sequence.filter(l => l.once), each = R.sequence.filter(l => !l.once);
  section.append(el("ul", { class: "tree" },
    branch(`Repeat ${group(R.loops)} times: a weight update`, () => each.flatMap(loop), true),
    once.length ? branch("Once a call", () => once.flatMap(loop), true) : null));
} });
