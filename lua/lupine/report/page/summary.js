// Summary and insights.
const SHARES = [["compute", "computing", "compute"], ["exchange", "exchange between tiles",
  "backward"], ["sync", "sync", "row"], ["copy", "copies between IPUs", "copy"],
["host", "host", "host"], ["streaming", "streaming memory", "stream"],
["collective", "replicas", "collective"]];

// What the cycles of a call are spent on, as parts of a bar.
function shares(r = R) {
  const t = Object.fromEntries(SHARES.map(([k]) => [k, 0]));
  for (const loop of r.sequence)
    for (const row of r.schedule.slice(loop.first_row - 1, loop.first_row - 1 + loop.rows))
      for (const k of Object.keys(t)) t[k] += row[k] * loop.count * (loop.once ? 1 : r.loops);
  return SHARES.map(([k, name, paint]) => ({ name, value: t[k], color: `var(--${paint})` }));
}

const insight = i => el("article", { class: "panel insight " + i.kind }, el("h3", {}, i.title),
  el("p", {}, i.text), i.saves ? el("p", { class: i.saves.includes("does not fit") ? "soft"
    : "saves" }, i.saves) : null);

VIEWS.push({ name: "summary", title: "Summary", draw(section) {
  const memory = ipus().map(i => R.memory[i]);
  const fits = memory.every(m => m.fits) && !(R.streaming > R.streaming_limit);
  const fullest = Math.max(...memory.map(m => m.max_tile_including_gaps / m.tile_bytes));
  section.append(el("div", { class: "cards" },
    card("Samples per second", group(R.samples_per_second), "simulated"),
    card("One call", time(R.cycles), group(R.cycles) + " cycles"),
    card("Chip", R.chip_name, `${R.ipus} IPUs x ${R.replicas} replicas`),
    card("Strategy", R.strategy.replace("_", " "), `${R.micro_batches} micro-batches an update`),
    card("IPUs computing", percent(R.pipeline_efficiency), "of the loop's computing time"
      + (R.wall_efficiency ? `; usefully ${percent(R.wall_efficiency)} of all time` : "")),
    card("Fullest tile", percent(fullest), fits ? "fits" : "does not fit"),
    card("Held all the time", bytes(memory.reduce((s, m) => s + m.always_live, 0)), "on all IPUs"),
    card("Streaming memory", bytes(memory.reduce((s, m) => s + m.off_chip, 0)), "of one replica"
      + (R.streaming_limit ? `; of a machine ${percent(R.streaming / R.streaming_limit)}` : ""))));
  section.append(el("h2", {}, "Where the cycles of a call go"),
    el("div", { class: "panel" }, bar(shares(), time)));
  const of = (kind, n) => DATA.insights.filter(i => i.kind === kind).slice(0, n);
  const first = [...of("bad", 2), ...of("warn", 3)];
  if (first.length) section.append(el("h2", {}, "What stands out"), ...first.map(insight));
  section.append(el("h2", {}, "Stages"), table(R.stages, [
    { title: "stage", value: s => s.stage }, { title: "IPU", value: s => s.ipu },
    { title: "block", value: s => s.block, text: true },
    { title: "forward cycles", value: s => s.forward_cycles },
    { title: "backward cycles", value: s => s.backward_cycles },
    { title: "of these recomputed", value: s => s.recompute_cycles },
    { title: "kept micro-batches", value: s => s.stash_depth }], { label: "stages" }));
  section.append(el("h2", {}, "As text"), el("pre", { tabindex: 0 }, DATA.summary));
} });

VIEWS.push({ name: "insights", title: "Insights", draw(section) {
  if (!DATA.insights.length) section.append(el("p", {}, "Nothing stands out."));
  section.append(...DATA.insights.map(insight));
} });
