// The schedule over time: a lane for the rows, each IPU and each link; zoom and pan.
const LANE = 26, LEFT = 190, TOP = 24;
const KIND = { compute: "compute", update: "update", copy: "copy", host_in: "host",
  host_out: "host", load: "stream", store: "stream", collective: "collective" };
const LINK = {
  copy: e => `IPU ${e.ipu} to IPU ${e.to}`, host_in: e => `host to IPU ${e.ipu}`,
  host_out: e => `IPU ${e.ipu} to host`, load: e => `streaming to IPU ${e.ipu}`,
  store: e => `IPU ${e.ipu} to streaming`, collective: e => `replicas of IPU ${e.ipu}`,
};
const laneOf = e => LINK[e.kind] ? LINK[e.kind](e) : "IPU " + e.ipu;

// Loops one after another: {rows: [{row, start}], count, turn, start, loop}; all cycles.
function loops() {
  let at = 0;
  return { list: R.sequence.map(loop => {
    let turn = 0;
    const rows = R.schedule.slice(loop.first_row - 1, loop.first_row - 1 + loop.rows).map(row => {
      const start = turn;
      turn += row.cycles;
      return { row, start };
    });
    const l = { rows, count: loop.count, turn, start: at, loop };
    at += turn * loop.count;
    return l;
  }), end: at };
}

function lanes() {
  const names = new Set(["rows"]), links = new Set();
  for (const row of R.schedule)
    for (const e of row.entries) (LINK[e.kind] ? links : names).add(laneOf(e));
  const sorted = s => [...s].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return ["rows", ...sorted(names).filter(n => n !== "rows"), ...sorted(links)];
}

function describe(e, number) {
  if (e.kind !== "compute") return `${laneOf(e)}: ${e.kind.replace("_", " ")}${
    e.bytes ? ", " + bytes(e.bytes) : ""}${e.beside ? ", beside computing" : ""}`;
  const s = R.stages[e.stage];
  return `stage ${e.stage}${s.block ? " (" + s.block + ")" : ""} ${
    e.backward ? "backward" : "forward"}, micro-batch ${number - e.offset}`;
}

VIEWS.push({ name: "timeline", title: "Timeline", draw(section) {
  const { list, end } = loops(), names = lanes();
  const lane = new Map(names.map((n, i) => [n, i]));
  const view = { from: 0, to: Math.max(end, 1) };
  let boxes = [], chosen = null;
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label":
    `Timeline of one weight update: ${names.length - 1} IPUs and links over ${time(end)}. ` +
    "Plus and minus zoom, arrows move, Home shows all." });
  const details = el("p", { role: "status" }, "Nothing is chosen: click on a bar.");
  const g = canvas.getContext("2d");

  const x = t => LEFT + (t - view.from) / (view.to - view.from) * (canvas.clientWidth - LEFT);
  const t = px => view.from + (px - LEFT) / (canvas.clientWidth - LEFT) * (view.to - view.from);
  function move(from, to) {
    const least = 20, width = Math.min(Math.max(to - from, least), Math.max(end, least));
    from = Math.min(Math.max(0, from), Math.max(0, end - width));
    view.from = from, view.to = from + width;
    draw();
  }
  function zoom(factor, centre) {
    move(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  }

  function block(name, start, length, paint, text, more) {
    const a = Math.max(x(start), LEFT), b = Math.min(x(start + length), canvas.clientWidth);
    if (b < LEFT || a > canvas.clientWidth) return;
    const y = TOP + lane.get(name) * LANE, w = Math.max(b - a, 1);
    g.fillStyle = paint;
    g.fillRect(a, y + 3, w, LANE - 6);
    if (w > 60) {
      g.save();
      g.beginPath(), g.rect(a, y, w - 4, LANE), g.clip();
      g.fillStyle = color("bg");
      g.fillText(text, a + 5, y + LANE / 2 + 4);
      g.restore();
    }
    boxes.push({ a, b: a + w, y, name, text, start, length, more });
  }
  function turn(l, k) {
    for (const { row, start } of l.rows) {
      const at = l.start + k * l.turn + start, number = row.first + k * l.loop.step;
      if (at > view.to || at + row.cycles < view.from) continue;
      block("rows", at, row.cycles, color("row"), `${row.kind}, turn ${number}`);
      for (const e of row.entries)
        block(laneOf(e), at + e.start, e.cycles, color(e.kind === "compute" && e.backward
          ? "backward" : KIND[e.kind]), describe(e, number), e);
    }
  }
  // Turns that are narrower than a pixel or two are one block.
  function dense(l) {
    const all = l.turn * l.count;
    block("rows", l.start, all, color("row"), `${group(l.count)} turns of ${group(l.turn)} cycles`);
    for (const { row } of l.rows)
      for (const e of row.entries)
        block(laneOf(e), l.start, all, color(e.kind === "compute" && e.backward ? "backward"
          : KIND[e.kind]), `${group(l.count)} times ${e.kind}`);
  }
  function axis() {
    const span = view.to - view.from, rough = span / Math.max(2, (canvas.clientWidth - LEFT) / 130);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(k => k * power).find(s => s >= rough);
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      g.fillStyle = color("line");
      g.fillRect(x(at), TOP - 4, 1, canvas.clientHeight);
      g.fillStyle = color("soft");
      g.fillText(group(at), x(at) + 3, TOP - 8);
    }
  }
  function draw() {
    const ratio = window.devicePixelRatio || 1, height = TOP + names.length * LANE + 6;
    canvas.style.height = height + "px";
    canvas.width = canvas.clientWidth * ratio, canvas.height = height * ratio;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.font = "12px system-ui, sans-serif";
    g.fillStyle = color("panel");
    g.fillRect(0, 0, canvas.clientWidth, height);
    axis();
    boxes = [];
    const pixel = (view.to - view.from) / Math.max(1, canvas.clientWidth - LEFT);
    for (const l of list) {
      if (!l.turn || l.start > view.to || l.start + l.turn * l.count < view.from) continue;
      if (l.turn / Math.max(1, l.rows.length) < 2 * pixel && l.count > 2) { dense(l); continue; }
      const first = Math.max(0, Math.floor((view.from - l.start) / l.turn));
      const last = Math.min(l.count - 1, Math.floor((view.to - l.start) / l.turn));
      for (let k = first; k <= last; k++) turn(l, k);
    }
    g.fillStyle = color("panel");
    g.fillRect(0, 0, LEFT - 1, height);
    g.fillStyle = color("ink");
    names.forEach((n, i) => g.fillText(n, 8, TOP + i * LANE + LANE / 2 + 4));
    if (chosen) {
      g.strokeStyle = color("ink"), g.lineWidth = 2;
      g.strokeRect(Math.max(x(chosen.start), LEFT), TOP + lane.get(chosen.name) * LANE + 2,
        Math.max(2, x(chosen.start + chosen.length) - Math.max(x(chosen.start), LEFT)), LANE - 4);
    }
  }
  const hit = event => {
    const r = canvas.getBoundingClientRect(), px = event.clientX - r.left, py = event.clientY - r.top;
    return boxes.findLast(b => b.a <= px && px <= b.b && b.y <= py && py < b.y + LANE);
  };
  const say = b => `${b.text}: from cycle ${group(b.start)}, ${group(b.length)} cycles, ${
    time(b.length)}`;
  canvas.addEventListener("wheel", e => {
    e.preventDefault();
    const px = e.clientX - canvas.getBoundingClientRect().left;
    zoom(e.deltaY > 0 ? 1.25 : .8, t(Math.max(px, LEFT)));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", e => {
    drag = { px: e.clientX, from: view.from, to: view.to, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", e => {
    if (drag) {
      const d = (e.clientX - drag.px) / (canvas.clientWidth - LEFT) * (drag.to - drag.from);
      drag.moved ||= Math.abs(e.clientX - drag.px) > 3;
      if (drag.moved) move(drag.from - d, drag.to - d);
    }
    const b = drag ? null : hit(e), tip = document.getElementById("tip");
    tip.hidden = !b;
    if (b) {
      tip.textContent = say(b);
      tip.style.left = Math.min(e.clientX + 14, innerWidth - 430) + "px";
      tip.style.top = e.clientY + 16 + "px";
    }
  });
  canvas.addEventListener("pointerleave", () => { document.getElementById("tip").hidden = true; });
  canvas.addEventListener("pointerup", e => {
    const b = drag && !drag.moved && hit(e);
    drag = null;
    if (b) chosen = b, details.textContent = say(b), draw();
  });
  canvas.addEventListener("keydown", e => {
    const width = view.to - view.from, centre = view.from + width / 2;
    const keys = { "+": () => zoom(.7, centre), "=": () => zoom(.7, centre),
      "-": () => zoom(1.4, centre), Home: () => move(0, end),
      ArrowLeft: () => move(view.from - width / 8, view.to - width / 8),
      ArrowRight: () => move(view.from + width / 8, view.to + width / 8) };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  const button = (text, label, f) => el("button", { type: "button", class: "button",
    "aria-label": label, onclick: f }, text);
  const middle = () => (view.from + view.to) / 2;
  section.append(el("div", { class: "filters" }, button("+", "zoom in", () => zoom(.6, middle())),
    button("\u2212", "zoom out", () => zoom(1.6, middle())),
    button("all", "show all", () => move(0, end)),
    el("span", { class: "soft" }, "One weight update of one replica, in cycles; wheel and drag, " +
      "or + \u2212 \u2190 \u2192 Home.")),
  el("div", { class: "key" }, ...[["compute", "forward"], ["backward", "backward"],
    ["update", "update"], ["copy", "between IPUs"], ["host", "host"], ["stream", "streaming memory"],
    ["collective", "replicas"]].map(([c, text]) => el("span", {}, el("i", {
    style: `background:var(--${c})` }), text))), canvas, details);
  CURVES.push({ again: draw });
  if (R.rows_left_out)
    section.append(el("p", { class: "soft" }, `${group(R.rows_left_out)} rows are left out.`));
  draw();
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(section);
} });
