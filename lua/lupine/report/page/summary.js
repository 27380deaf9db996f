// Summary and insights.
function shares() {
  const t = { compute: 0, exchange: 0, sync: 0, copy: 0, host: 0, streaming: 0, collective: 0 };
  for (const loop of R.sequence)
    for (const row of R.schedule.slice(loop.first_row - 1, loop.first_row - 1 + loop.rows))
      for (const k of Object.keys(t)) t[k] += row[k] * loop.count * (loop.once ? 1 : R.loops);
  return t;
}

VIEWS.push({ name: "summary", title: "Summary", draw(section) {
  const memory = ipus().map(i => R.memory[i]);
  const fullest = Math.max(...memory.map(m => m.max_tile_including_gaps / m.tile_bytes));
  const t = shares(), c = name => color(name);
  section.append(el("div", { class: "cards" },
    card("Samples per second", group(R.samples_per_second), "simulated"),
    card("One call", time(R.cycles), group(R.cycles) + " cycles"),
    card("Chip", R.chip_name, `${R.ipus} IPUs x ${R.replicas} replicas`),
    card("Strategy", R.strategy.replace("_", " "), `${R.micro_batches} micro-batches an update`),
    card("IPUs computing", percent(R.pipeline_efficiency), "of the loop's computing time"
      + (R.wall_efficiency ? `; usefully ${percent(R.wall_efficiency)} of all time` : "")),
    card("Fullest tile", percent(fullest), fullest > 1 ? "does not fit" : "fits"),
    card("Held all the time", bytes(memory.reduce((s, m) => s + m.always_live, 0)), "on all IPUs"),
    card("Streaming memory", bytes(memory.reduce((s, m) => s + m.off_chip, 0)), "of one replica")));
  section.append(el("h2", {}, "Where the cycles of a call go"), el("div", { class: "panel" }, bar([
    { name: "computing", value: t.compute, color: c("compute") },
    { name: "exchange between tiles", value: t.exchange, color: c("backward") },
    { name: "sync", value: t.sync, color: c("row") },
    { name: "copies between IPUs", value: t.copy, color: c("copy") },
    { name: "host", value: t.host, color: c("host") },
    { name: "streaming memory", value: t.streaming, color: c("stream") },
    { name: "replicas", value: t.collective, color: c("collective") }], time)));
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
  for (const i of DATA.insights)
    section.append(el("article", { class: "panel insight " + i.kind }, el("h3", {}, i.title),
      el("p", {}, i.text), i.saves ? el("p", { class: "saves" }, i.saves) : null));
} });
