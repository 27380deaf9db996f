// Memory by tile, and over the steps of a period.
function categories(m) {
  return Object.entries(m.categories).map(([name, value], i) => ({ name: name.replaceAll("_", " "),
    value, color: SERIES[i % SERIES.length] }));
}

VIEWS.push({ name: "memory", title: "Memory", draw(section) {
  const list = ipus(), chart = el("div", { class: "chart", role: "img",
    "aria-label": "bytes of each tile, with gaps" });
  const tiles = R.memory[list[0]].tiles.length;
  const rows = Array.from({ length: tiles }, (_, k) => [k, ...list.map(i => R.memory[i].tiles[k]),
    R.memory[list[0]].tile_bytes]);
  section.append(el("h2", {}, "By tile"), el("p", { class: "soft" },
    `${tiles} classes of neighbouring tiles; of each the fullest tile, with gaps. The line is ` +
    `what a tile has. Drag to zoom, double-click to see all.`), el("div", { class: "panel" }, chart));
  curve(chart, rows, ["class", ...list.map(i => "IPU " + i), "limit"], () => ({ stepPlot: true,
    includeZero: true, colors: [...list.map((_, i) => SERIES[i % SERIES.length]), color("bad")],
    series: { limit: { strokePattern: [6, 4] } } }));
  for (const i of list) {
    const m = R.memory[i];
    section.append(el("h2", {}, `IPU ${i}: ${m.fits ? "fits" : "does not fit"}, fullest tile ${
      m.fullest_tile} with ${group(m.max_tile_including_gaps)} of ${group(m.tile_bytes)} bytes`),
    el("div", { class: "two" },
      el("div", { class: "panel" }, bar(categories(m), bytes), el("p", { class: "soft" },
        `Always live ${bytes(m.always_live)}, at the peak ${bytes(m.not_always_live)} more${
          m.peak_in_update ? " (in the weight update)" : ""}; in streaming memory ${
          bytes(m.off_chip)}.`)),
      table(m.biggest, [{ title: "biggest at the peak", value: b => b.name, text: true },
        { title: "layer", value: b => b.scope, text: true },
        { title: "kind", value: b => b.kind.replaceAll("_", " "), text: true },
        { title: "bytes", value: b => b.bytes }], { label: "biggest tensors of IPU " + i })));
  }
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
  let ipu = list[0], spans = [], drawn;
  function at(step) {
    const l = all[ipu], k = (l.stage[step] < 0 ? "u" : "m") + l.node[step], n = NODE.get(k);
    head.textContent = `Step ${step}: ${n ? `${n.operator} of ${n.scope || "the model"} ${place(n)}`
      : "between runs"}${l.stage[step] < 0 ? ", weight update" : `, stage ${l.stage[step]} ${
      l.backward[step] ? "backward" : "forward"}`}; ${bytes(l.bytes[step])} held, ${
      bytes(l.temporary[step])} scratch`;
    live.refill(spans.filter(s => s.from <= step && step <= s.to));
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
  const step = el("input", { type: "number", min: 0, value: 0, "aria-label": "step",
    onchange: () => at(Math.min(Math.max(0, +step.value), all[ipu].bytes.length - 1)) });
  section.append(el("div", { class: "filters" }, choose("IPU", list.map(i => [i, "IPU " + i]),
    v => { ipu = +v; show(); }), el("label", {}, "step ", step)),
  el("p", { class: "soft" }, "Bytes over the IPU's tiles, an operator a step: one micro-batch " +
    "through all runs of the IPU, then the weight update. Click on a step to see its tensors."),
  el("div", { class: "panel" }, chart), head, live);
  show();
} });
