// Memory by tile, and over the steps of a period.
// Categories have the same colour everywhere.
const CATEGORY = new Map(Object.keys(R.memory[ipus()[0]]?.categories || {}).sort().map((name, i) =>
  [name, SERIES[i % SERIES.length]]));
const words = name => name.replaceAll("_", " ");
const categories = m => [...CATEGORY].map(([name, color]) => ({ name: words(name),
  value: m.categories[name] || 0, color }));

// A tile's bytes by category, gaps and what is free.
function tileParts(m, k) {
  const of = new Map(m.tile_categories.map(c => [c.name, c.tiles[k]]));
  const parts = [...CATEGORY].map(([name, color]) => ({ name: words(name),
    value: of.get(name) || 0, color }));
  const held = parts.reduce((s, p) => s + p.value, 0);
  return [...parts, { name: "gaps", value: Math.max(0, m.tiles[k] - held), color: color("line") },
    { name: "free", value: Math.max(0, m.tile_bytes - m.tiles[k]), color: color("panel") }];
}

VIEWS.push({ name: "memory", title: "Memory", draw(section) {
  const list = ipus();
  if (!list.length) return section.append(el("p", {}, "No IPU holds anything."));
  const share = i => R.memory[i].max_tile_including_gaps / R.memory[i].tile_bytes;
  const classes = R.memory[list[0]].tiles.length, first = k => Math.ceil(k * R.tiles / classes);
  let ipu = list.reduce((a, b) => share(b) > share(a) ? b : a), tile = R.memory[ipu].fullest_tile;

  const chart = el("div", { class: "chart", role: "img", "aria-label":
    "bytes of each tile, with gaps" });
  const stack = el("div", { class: "chart", role: "img", "aria-label":
    "bytes of the chosen IPU's tiles by category" });
  const head = el("h2", { role: "status" }), panel = el("div", { class: "two" });
  const number = el("input", { type: "number", min: 0, max: R.tiles - 1,
    onchange: () => choose_tile(+number.value) });
  const which = choose("IPU", list.map(i => [i, "IPU " + i]), v => choose_ipu(+v));
  let stacked;

  function show_tile() {
    const m = R.memory[ipu], k = Math.min(classes - 1, Math.floor(tile * classes / R.tiles));
    const parts = tileParts(m, k), used = m.tiles[k];
    number.value = tile;
    head.textContent = `Tile ${tile} of IPU ${ipu}: ${group(used)} of ${group(m.tile_bytes)} bytes, ${
      percent(used / m.tile_bytes)}${used > m.tile_bytes ? ", out of memory" : ""}`;
    panel.replaceChildren(el("div", { class: "panel" }, bar(parts, bytes),
      el("p", { class: "soft" }, `Tiles ${first(k)} to ${first(k + 1) - 1} are of one class, whose ` +
        "fullest tile this is. Gaps lie between what the regions of memory hold.")),
    table(parts.filter(p => p.value > 0), [
      { title: "of the tile", value: p => p.name, text: true },
      { title: "bytes", value: p => p.value },
      { title: "share", value: p => p.value / m.tile_bytes, show: percent }],
    { by: 1, label: "the tile's memory by category" }));
  }
  function choose_tile(t) {
    tile = Math.min(Math.max(0, Math.round(t) || 0), R.tiles - 1);
    show_tile();
  }
  const pick = (_, x) => choose_tile(first(Math.round(x)));
  function show_ipu() {
    const m = R.memory[ipu], names = m.tile_categories.map(c => c.name);
    const rows = Array.from({ length: classes }, (_, k) => [k, ...names.map(n =>
      m.tile_categories.find(c => c.name === n).tiles[k])]);
    which.querySelector("select").value = ipu;
    stacked?.remove();
    stacked = curve(stack, rows, ["class", ...names.map(words)], () => ({ stackedGraph: true,
      stepPlot: true, includeZero: true, fillAlpha: .75, strokeWidth: .5, clickCallback: pick,
      colors: names.map(n => CATEGORY.get(n)) }));
    biggest.refill(m.biggest);
    all.replaceChildren(bar(categories(m), bytes), el("p", { class: "soft" },
      `Always live ${bytes(m.always_live)}, at the peak ${bytes(m.not_always_live)} more${
        m.peak_in_update ? " (in the weight update)" : ""}; in streaming memory ${
        bytes(m.off_chip)}. Code takes ${bytes(m.code)} of the ${bytes(m.code_limit)} that can ` +
      "hold code on a tile."));
  }
  function choose_ipu(i) {
    ipu = i, tile = R.memory[i].fullest_tile;
    show_ipu(), show_tile();
  }
  const all = el("div", { class: "panel" });
  const biggest = table([], [{ title: "biggest at the peak", value: b => b.name, text: true },
    { title: "layer", value: b => b.scope, text: true },
    { title: "kind", value: b => words(b.kind), text: true },
    { title: "bytes", value: b => b.bytes }], { label: "biggest tensors of the IPU" });
  const rows = Array.from({ length: classes }, (_, k) => [k, ...list.map(i => R.memory[i].tiles[k]),
    R.memory[list[0]].tile_bytes]);
  section.append(el("h2", {}, "All IPUs"), el("p", { class: "soft" },
    `${classes} classes of neighbouring tiles; of each the fullest tile, with gaps. The dashed line ` +
    "is what a tile has. Click to choose a tile, drag to zoom, double-click to see all."),
  el("div", { class: "panel" }, chart),
  table(list.map(i => ({ i, ...R.memory[i] })), [
    { title: "IPU", value: m => m.i, show: v => el("button", { type: "button", class: "link",
      onclick: () => choose_ipu(v) }, "IPU " + v) },
    { title: "fits", value: m => m.fits ? "yes" : "no", text: true, show: v =>
      el("span", { class: v === "no" ? "up" : null }, v) },
    { title: "fullest tile", value: m => m.fullest_tile },
    { title: "bytes of it, with gaps", value: m => m.max_tile_including_gaps },
    { title: "share", value: m => m.max_tile_including_gaps / m.tile_bytes, show: percent },
    { title: "always live", value: m => m.always_live },
    { title: "at the peak", value: m => m.not_always_live },
    { title: "streaming memory", value: m => m.off_chip }], { label: "IPUs" }),
  el("h2", {}, "One IPU"), el("div", { class: "filters" }, which,
    el("label", {}, "tile ", number), el("button", { type: "button", class: "button",
      onclick: () => choose_tile(R.memory[ipu].fullest_tile) }, "fullest")),
  head, panel, el("h2", {}, "Its tiles by category"), el("div", { class: "panel" }, stack),
  el("h2", {}, "The whole IPU"), el("div", { class: "two" }, all, biggest));
  curve(chart, rows, ["class", ...list.map(i => "IPU " + i), "limit"], () => ({ stepPlot: true,
    includeZero: true, colors: [...list.map((_, i) => SERIES[i % SERIES.length]), color("bad")],
    clickCallback: pick, series: { limit: { strokePattern: [6, 4] } } }));
  show_ipu(), show_tile();
} });

VIEWS.push({ name: "liveness", title: "Liveness", draw(section) {
  const all = DATA.liveness, list = Object.keys(all).map(Number).sort((a, b) => a - b);
  if (!list.length) return section.append(el("p", {}, "The file has no steps."));
  const chart = el("div", { class: "chart", role: "img", "aria-label": "memory over steps" });
  const head = el("p", { class: "soft" }), live = table([], [
    { title: "there at the step", value: s => s.name, text: true },
    { title: "layer", value: s => s.scope, text: true },
    { title: "from", value: s => s.from }, { title: "to", value: s => s.to },
    { title: "bytes", value: s => s.bytes }], { by: 4, label: "tensors at the step" });
  const step = el("input", { type: "number", min: 0, value: 0, "aria-label": "step",
    onchange: () => at(Math.min(Math.max(0, +step.value), all[ipu].bytes.length - 1)) });
  let ipu = list[0], spans = [], drawn;
  function at(k) {
    step.value = k;
    const l = all[ipu], n = NODE.get((l.stage[k] < 0 ? "u" : "m") + l.node[k]);
    head.textContent = `Step ${k}: ${n ? `${n.operator} of ${n.scope || "the model"} ${place(n)}`
      : "between runs"}${l.stage[k] < 0 ? ", weight update" : `, stage ${l.stage[k]} ${
      l.backward[k] ? "backward" : "forward"}`}; ${bytes(l.bytes[k])} held, ${
      bytes(l.temporary[k])} scratch`;
    live.refill(spans.filter(s => s.from <= k && k <= s.to));
  }
  function show() {
    const l = all[ipu], base = R.memory[ipu].always_live;
    spans = unpack(l.spans);
    const rows = l.bytes.map((b, k) => [k, base, base + b, base + b + l.temporary[k]]);
    drawn?.remove();
    drawn = curve(chart, rows, ["step", "always live", "with tensors", "with scratch"], () => ({
      includeZero: true, colors: [color("row"), color("compute"), color("copy")], stepPlot: true,
      pointClickCallback: (_, p) => at(p.xval), clickCallback: (_, x) => at(x),
      showRangeSelector: rows.length > 60, rangeSelectorPlotStrokeColor: color("soft"),
      rangeSelectorPlotFillColor: color("mark") }));
    let peak = 0;
    rows.forEach((r, k) => { if (r[3] > rows[peak][3]) peak = k; });
    at(peak);
  }
  section.append(el("div", { class: "filters" }, choose("IPU", list.map(i => [i, "IPU " + i]),
    v => { ipu = +v; show(); }), el("label", {}, "step ", step)),
  el("p", { class: "soft" }, "Bytes over the IPU's tiles, an operator a step: one micro-batch " +
    "through all runs of the IPU, then the weight update. Click on a step to see its tensors."),
  el("div", { class: "panel" }, chart), head, live);
  show();
} });
