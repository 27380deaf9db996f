-- The page of a report in a browser: a script clicks through every view, filters, sorts,
-- zooms, opens and compares, and writes down what it finds.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.passes.ipu.helper")
local page = require("lupine.report.page")
local program = require("spec.support.program")

local folder

setup(function()
  folder = files.folder()
end)
teardown(function()
  files.remove(folder)
end)

-- What the visitor of a page does. `note` collects the results, by name.
local VISITOR = [[
<script>
const noted = {}, failures = [];
addEventListener("error", e => failures.push(e.message));
const $ = (q, from = document) => from.querySelector(q);
const view = name => { $("#tab-" + name).click(); return $("#view-" + name); };
const wait = () => new Promise(done => setTimeout(done, 30));
const cells = t => [...t.querySelectorAll("tbody tr")].map(r =>
  [...r.cells].map(c => c.textContent));
async function visit() {
  noted.tabs = [...document.querySelectorAll("nav [role=tab]")].map(t => t.textContent);
  noted.cards = [...view("summary").querySelectorAll(".card b")].map(b => b.textContent);
  noted.insights = [...view("insights").querySelectorAll("h3")].map(h => h.textContent);
  const memory = view("memory");
  await wait();
  noted.memory_curves = memory.querySelectorAll("canvas").length;
  const each = $(".scroll", memory), tile = $("input[type=number]", memory);
  const chosen = () => ({ head: $("h2[role=status]", memory).textContent,
    of: cells(memory.querySelectorAll(".scroll")[1]) });
  noted.each = cells(each);
  noted.fullest = chosen();
  [...each.querySelectorAll("button.link")].pop().click();
  tile.value = "1000", tile.dispatchEvent(new Event("change"));
  await wait();
  noted.tile = chosen();
  tile.value = "99999", tile.dispatchEvent(new Event("change"));
  noted.last_tile = chosen().head;
  const live = view("liveness");
  await wait();
  noted.peak = $(".soft + table, p.soft ~ p.soft", live).textContent;
  noted.tensors = cells(live).length;
  const ipu = $("select", live);
  ipu.value = "1", ipu.dispatchEvent(new Event("change"));
  await wait();
  noted.peak_1 = $("p.soft ~ p.soft", live).textContent;
  const ops = view("operations");
  noted.first = cells(ops)[0];
  const head = [...ops.querySelectorAll("th button")].find(b => b.textContent === "operator");
  head.click();
  noted.sorted = cells($(".scroll", ops)).map(c => c[0]);
  noted.sort = head.parentElement.getAttribute("aria-sort");
  const search = $("input", ops);
  noted.vertices = cells([...ops.querySelectorAll(".scroll")].pop());
  search.value = "MM layer1", search.dispatchEvent(new Event("input"));
  noted.found = cells($(".scroll", ops)).map(c => c[0] + " " + c[1]);
  const tree = view("program");
  for (let i = 0; i < 4; i++) {
    for (const d of tree.querySelectorAll("details:not([open])")) d.open = true;
    await wait();
  }
  noted.leaves = tree.querySelectorAll("li > span").length;
  const time = view("timeline"), canvas = $("canvas", time);
  await wait();
  const ink = () => {
    const d = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let sum = 0;
    for (let i = 0; i < d.length; i += 4)
      sum = (sum * 31 + d[i] + 3 * d[i + 1] + 7 * d[i + 2]) % 1e9;
    return sum;
  };
  const box = canvas.getBoundingClientRect(), all = ink();
  const at = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, { clientX: box.left + x,
    clientY: box.top + y, pointerId: 1 }));
  let x = 190;
  while (!$("#tip").textContent && x < 900) at("pointermove", x += 4, 64);
  noted.tip = $("#tip").textContent;
  canvas.setPointerCapture = () => {};
  at("pointerdown", x, 64), at("pointerup", x, 64);
  noted.chosen = $("p[role=status]", time).textContent;
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
  noted.zoomed = ink() !== all;
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 1, cancelable: true }));
  const before = ink();
  $("#theme").click();
  noted.theme = document.documentElement.dataset.theme;
  noted.repainted = ink() !== before;
  const compare = view("compare");
  noted.compared = cells(compare).slice(0, 3);
  await wait();
  noted.compared_curves = compare.querySelectorAll("canvas").length;
  noted.compared_heads = [...compare.querySelectorAll("h2")].map(h => h.textContent);
  const file = $("input", compare), list = new DataTransfer();
  list.items.add(new File(["{}"], "x.json"));
  file.files = list.files, file.dispatchEvent(new Event("change"));
  for (let i = 0; i < 100 && $(".scroll", compare); i++) await wait(); // the file is read
  noted.refused = $("[role=status]", compare).textContent;
  $("#tab-summary").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  const every = query => [...document.querySelectorAll(query)];
  noted.shown = every("main section").filter(s => !s.hidden).map(s => s.id);
  noted.unnamed = every("button, input, select, canvas, [role=img]").filter(e =>
     !(e.textContent.trim() || e.closest("[aria-label], label"))).length;
}
visit().catch(e => failures.push(String(e.stack))).finally(() => {
  noted.failures = failures;
  document.body.replaceChildren("RESULT" + JSON.stringify(noted) + "END");
});
</script>
]]

local BROWSER = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
  .. "--disable-background-networking --disable-component-update --disable-sync "
  .. "--user-data-dir=%s/profile --window-size=%d,900 --virtual-time-budget=20000 "
  .. "--dump-dom file://%s/page.html"

local function visited(r, other, width)
  files.write(folder .. "/page.html", page.text(r, other) .. VISITOR)
  local out = program.shell(BROWSER:format(folder, width, folder))
  local text = assert(out:match("<body[^>]*>RESULT(.-)END</body>"), out:sub(-500))
  text = text:gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&amp;", "&")
  return core.json_decode(text, "what the browser noted")
end

local function pipelined(accumulation)
  return helper.simulate(helper.chain(2, { train = true, accumulation = accumulation }))
end

local function number(text)
  return tonumber((text:gsub(",", "")))
end

-- The head and the table are of this tile, or of the fullest one of all IPUs.
local function shows_tile(seen, r, ipu, tile)
  local head_tile, head_ipu, bytes = seen.head:match("^Tile (%d+) of IPU (%d+): ([%d,]+) of")
  local of, n = {}, tonumber(head_tile)
  local m = r.memory[tonumber(head_ipu)]
  local class = n * #m.tiles // r.tiles + 1
  assert.equal(tile or m.fullest_tile, n)
  assert.equal(ipu or tonumber(head_ipu), tonumber(head_ipu))
  assert.equal(m.tiles[class], number(bytes))
  if not tile then
    for _, other in pairs(r.memory) do
      assert.is_true(other.max_tile_including_gaps <= m.max_tile_including_gaps)
    end
  end
  local all = 0
  for _, row in ipairs(seen.of) do
    of[row[1]], all = number(row[2]), all + number(row[2])
  end
  for _, category in ipairs(m.tile_categories) do
    local bytes_of = category.tiles[class]
    assert.equal(bytes_of > 0 and bytes_of or nil, of[category.name:gsub("_", " ")])
  end
  assert.equal(m.tile_bytes, all)
end

describe("the page of a report in a browser", function()
  for _, width in ipairs({ 1280, 2560 }) do
    it(("has views that answer, %d pixels wide"):format(width), function()
      local r = pipelined(6)
      local seen = visited(r, pipelined(12), width)
      assert.same({ n = 0 }, seen.failures)
      assert.same({ "Summary", "Insights", "Memory", "Liveness", "Operations", "Program",
        "Timeline", "Compare", n = 8 }, seen.tabs)
      assert.equal(("%.0f"):format(r.samples_per_second), (seen.cards[1]:gsub(",", "")))
      assert.equal(#require("lupine.report.insights").of(r), #seen.insights)
      assert.is_true(seen.memory_curves >= 2)
      assert.equal(2, #seen.each)
      for ipu, cells in ipairs(seen.each) do
        local m = r.memory[ipu - 1]
        assert.same({ "yes", m.fullest_tile, m.max_tile_including_gaps }, { cells[2],
          number(cells[3]), number(cells[4]) })
      end
      shows_tile(seen.fullest, r, nil)
      shows_tile(seen.tile, r, 1, 1000)
      assert.matches("^Tile 1471 of IPU 1: ", seen.last_tile)
      assert.equal(#r.vertex_types, #seen.vertices)
      assert.equal(r.vertex_types[1].name, seen.vertices[1][1])
      assert.equal(r.vertex_types[1].cycles, number(seen.vertices[1][5]))
      assert.is_true(seen.compared_curves >= 1)
      assert.same({ "Cycles of a call", "Memory over steps", "Stages", "Operators", n = 4 },
        seen.compared_heads)
      assert.matches("^Step %d+: ", seen.peak)
      assert.is_true(seen.tensors > 0)
      assert.matches("^Step %d+: ", seen.peak_1)
      local nodes = r:nodes()
      table.sort(nodes, function(a, b)
        return a.cycles > b.cycles
      end)
      assert.equal(nodes[1].cycles, tonumber((seen.first[7]:gsub(",", ""))))
      assert.equal("ascending", seen.sort)
      for i = 2, #seen.sorted do
        assert.is_true(seen.sorted[i - 1] <= seen.sorted[i])
      end
      assert.is_true(#seen.found > 0)
      for _, name in ipairs(seen.found) do
        assert.matches("^mm .*layer1", name)
      end
      assert.is_true(seen.leaves > #nodes)
      assert.matches("micro%-batch 0: from cycle", seen.tip)
      assert.equal(seen.tip, seen.chosen)
      assert.is_true(seen.zoomed)
      assert.equal("dark", seen.theme)
      assert.is_true(seen.repainted)
      assert.equal("samples a second", seen.compared[1][1])
      assert.matches("^That file is no report", seen.refused)
      assert.same({ "view-insights", n = 1 }, seen.shown)
      assert.equal(0, seen.unnamed)
    end)
  end
end)
