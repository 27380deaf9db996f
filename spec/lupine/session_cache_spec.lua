-- Compiled steps in a folder, and in a file: what is loaded computes and says what
-- was compiled, and nothing that is not an entry of ours is trusted.
local cache = require("lupine.session.cache")
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local session = require("lupine.session")
local stored = require("lupine.session.stored")
local torch = require("torch")

local folder, lines

before_each(function()
  folder, lines = files.unused(), {}
end)
after_each(function()
  files.remove(folder)
end)

local function of_folder()
  return { path = folder, log = function(level, format, ...)
    lines[#lines + 1] = level .. ": " .. format:format(...)
  end }
end

local CONSTANT = torch.tensor({ 0.5, -0.25 })

-- y = x * w + constant, w of the host; `scale` is compiled in.
local function open(w, scale, spec)
  local x = torch.empty(2)
  local step = compiled.step(function(a)
    return a * w * (scale or 1) + CONSTANT
  end, { x }, { { "parameter", "w", w } })
  spec = spec or {}
  spec.compile, spec.tensors = spec.compile or {}, { parameter = { w = w } }
  spec.cache = spec.cache == nil and of_folder() or spec.cache or nil
  return session.open(step, spec)
end

local function run(s)
  return s:run({ torch.tensor({ 1.0, 2.0 }) })[1]:tolist()
end

local function entries()
  local _, names = core.list_folder(folder)
  table.sort(names)
  return names
end

describe("the cache of compiled steps", function()
  it("has an entry of what was compiled, which serves other weights", function()
    local first = open(torch.tensor({ 2.0, 3.0 }))
    assert.same({ 2.5, 5.75 }, run(first))
    local second = open(torch.tensor({ 4.0, -1.0 }))
    assert.same({ 4.5, -2.25 }, run(second))
    assert.equal(1, #entries())
    assert.truthy(lines[2]:find("miss.*nothing is stored"))
    assert.truthy(lines[#lines]:find("info: executable cache: hit", 1, true))
    assert.equal(first.report:summary(), second.report:summary())
    assert.equal(first.report:json(), second.report:json())
    assert.same(first.report:nodes(), second.report:nodes())
  end)

  it("tells apart what compiles to something else", function()
    local w = torch.tensor({ 2.0, 3.0 })
    open(w)
    for i, other in ipairs({
      function() open(w, 2) end,
      function() open(w, 1, { compile = { replicas = 2 } }) end,
      function() open(w, 1, { compile = { device_iterations = 3 } }) end,
      function() open(w, 1, { system = { chip = "ipu1" } }) end,
      function() open(w, 1, { compile = { numerics = { stochastic = true } } }) end,
      function() open(w:double()) end,
    }) do
      other()
      assert.equal(i + 1, #entries())
    end
  end)

  it("does not ask where in a script the model stands, nor how the host runs it", function()
    local w = torch.tensor({ 2.0, 3.0 })
    local function again(text)
      local x = torch.empty(2)
      local step = compiled.step(load(text)(w), { x }, { { "parameter", "w", w } })
      return session.open(step, { compile = {}, tensors = { parameter = { w = w } },
        cache = of_folder() })
    end
    again("local w = ...; return function(x) return x * w end")
    again("local w = ...\n\n\nreturn function(x)\n return x * w end")
    open(w)
    open(w, 1, { host = { threads = 1, fuse = false } })
    open(w, 1, { progress = function() end })
    assert.equal(2, #entries())
  end)

  it("ignores damaged and foreign files, and writes them anew", function()
    local w = torch.tensor({ 2.0, 3.0 })
    open(w)
    local path = folder .. "/" .. entries()[1]
    local whole = files.read(path)
    local wrong = stored.read(path)
    for _, bytes in ipairs({ "", "return os.exit(1)", whole:sub(1, #whole // 2),
      whole:sub(1, -2) .. "x" }) do
      files.write(path, bytes)
      assert.same({ 2.5, 5.75 }, run(open(w)))
      assert.truthy(table.concat(lines, "\n"):find("a damaged file is ignored", 1, true))
      assert.equal(whole, files.read(path))
      lines = {}
    end
    -- an entry of a step with another variable
    local text = wrong.texts.step:gsub('"w"', '"v"')
    stored.write(path, { step = text, report = wrong.texts.report }, {})
    assert.same({ 2.5, 5.75 }, run(open(w)))
    assert.truthy(table.concat(lines, "\n"):find("damaged file.*'w' is another one"))
  end)

  it("says what is of another version", function()
    local w = torch.tensor({ 2.0, 3.0 })
    open(w)
    local name = entries()[1]
    os.rename(folder .. "/" .. name, folder .. "/" .. name:gsub("%-.*", "-0.0.9-1.lupine"))
    lines = {}
    open(w)
    assert.truthy(lines[2]:find("another version only: 0.0.9-1", 1, true))
    assert.equal(2, #entries())
  end)

  it("reads the folder for an entry that is missing alone", function()
    local w = torch.tensor({ 2.0, 3.0 })
    local listed = 0
    local _ <close> = helper.replaced(core, "list_folder", function(original, path)
      listed = listed + 1
      return original(path)
    end)
    open(w)
    local missed = listed
    open(w)
    assert.equal(missed, listed)
    assert.is_true(missed <= 2) -- what other versions there are, and what is too old
  end)

  it("refuses a folder that cannot be", function()
    files.write(folder, "")
    helper.raises("OSError", "cannot be written", function()
      open(torch.ones(2))
    end)
  end)

  it("compiles all the same where an entry cannot be written, and says so", function()
    local w = torch.tensor({ 2.0, 3.0 })
    open(w)
    local path = folder .. "/" .. entries()[1]
    os.remove(path)
    core.make_folder(path .. "/in the way")
    lines = {}
    for _ = 1, 2 do
      assert.same({ 2.5, 5.75 }, run(open(w)))
    end
    local log = table.concat(lines, "\n")
    assert.equal(2, select(2, log:gsub("warn: executable cache: [^\n]* could not be stored: ", "")))
    assert.falsy(log:find("compiled and stored", 1, true))
    assert.same({}, entries()) -- no temporary file, no lock
  end)

  it("knows equal specs whatever the order of their keys, and the same step planned", function()
    local step = open(torch.ones(2), 1, { cache = false }).exec:step()
    local a, b = {}, {}
    for i = 1, 40 do
      a["k" .. i], b["k" .. 41 - i] = i, 41 - i
    end
    assert.equal(cache.key(step, a), cache.key(step, b))
    b.k3 = 3.0
    assert.not_equal(cache.key(step, a), cache.key(step, b))
    assert.not_equal(cache.key(step, a), cache.key(step, a, step))
  end)
end)

describe("a stored session", function()
  local path

  before_each(function()
    core.make_folder(folder)
    path = folder .. "/s.lupine"
  end)

  local function save(s)
    local texts, tensors = stored.take(s)
    stored.write(path, texts, tensors)
  end

  local function load(tensors)
    local step, spec = stored.open(stored.read(path))
    spec.tensors = tensors
    return session.open(step, spec)
  end

  it("has its constants, loops, modes and report, and takes the host's tensors", function()
    local first = open(torch.tensor({ 2.0, 3.0 }), 1, { cache = false,
      compile = { device_iterations = 2 }, output = { mode = "final", period = 1 } })
    save(first)
    local second = load({ parameter = { w = torch.tensor({ 4.0, -1.0 }) } })
    local x = torch.tensor({ 9.0, 9.0, 1.0, 2.0 })
    assert.same({ 2.5, 5.75 }, first:run({ x })[1]:tolist())
    assert.same({ 4.5, -2.25 }, second:run({ x })[1]:tolist())
    assert.equal(first.report:summary(), second.report:summary())
    assert.equal(first.report:json(), second.report:json())
    save(second)
    assert.equal(first.exec:step():text("step"), load({ parameter = { w = torch.ones(2) } })
      .exec:step():text("step"))
  end)

  it("names the file and what the host's tensors lack", function()
    save(open(torch.ones(2), 1, { cache = false }))
    helper.raises("Error", "s%.lupine: the model has no parameter 'w'", function()
      load({ parameter = {} })
    end)
    local other = "not of this model: .* float32%[2%], its data are float32%[3%]"
    helper.raises("Error", other, function()
      load({ parameter = { w = torch.ones(3) } })
    end)
  end)

  it("names the file and the constant that it lacks", function()
    local texts = stored.take(open(torch.ones(2), 1, { cache = false }))
    stored.write(path, texts, {})
    helper.raises("Error", "s%.lupine: the file has no constant '%d+' of the compiled program",
      function() load({ parameter = { w = torch.ones(2) } }) end)
  end)
end)
