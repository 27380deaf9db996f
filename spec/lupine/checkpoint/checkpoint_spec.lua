-- Checkpoints as folders: what is in them, what is refused, that nothing else is touched.
-- Values: what was saved; damage is made with bytes, not with the code under test.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local safetensors = require("lupine.safetensors")
local tables = require("lupine.base.tables")
local torch = require("torch")
local nn = torch.nn

local raises = helper.raises
local folder

setup(function()
  folder = program.shell("mktemp -d"):gsub("\n", "")
end)
teardown(function()
  program.shell("rm -rf " .. folder)
end)
before_each(function()
  program.shell(("rm -rf %s; mkdir %s"):format(folder, folder))
end)

local function at(name)
  return folder .. "/" .. name
end

local function loading(name)
  return function()
    return checkpoint.load(at(name))
  end
end

local function listed(path)
  return (program.shell(("cd %s && find . -mindepth 1 | sort"):format(path or folder)))
end

local function round(value)
  checkpoint.save(at("c"), { value = value })
  return checkpoint.load(at("c")).value
end

describe("values", function()
  it("come back with their types", function()
    local value = { 1, 1.0, -0.0, 2 ^ 53 + 1, math.maxinteger, math.mininteger, math.huge,
      -math.huge, 0.1, 1e-320, "text", "\0\255bytes", true, false, torch.float16, torch.none,
      { a = { b = {} } }, { [0] = "x", [2.5] = "y" } }
    local got = round(value)
    assert.same(#value, #got)
    for i, x in ipairs(value) do
      assert.same(x, got[i])
      assert.equal(math.type(x), math.type(got[i]))
    end
    assert.equal("-0.0", tostring(got[3]))
    assert.is_true(rawequal(torch.none, got[16]))
    local nan = round(0 / 0)
    assert.is_true(nan ~= nan)
    assert.is_false(round(false))
  end)

  it("hold tensors of any type, with all bits", function()
    for _, dtype in ipairs({ torch.float32, torch.float64, torch.float16, torch.bfloat16,
      torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool }) do
      local x = (torch.rand({ 3, 4 }) * 100):to(dtype)
      local got = round({ x = x }).x
      assert.equal(dtype, got.dtype)
      assert.equal(x:tobytes(), got:tobytes())
    end
    local long = torch.tensor({ math.maxinteger, math.mininteger, 2 ^ 53 | 0 + 1 })
    assert.equal(long:tobytes(), round(long):tobytes())
    assert.same({ 0, 3 }, { table.unpack(round(torch.zeros(0, 3)).shape) })
  end)

  it("that are no data are refused, and what was there stays", function()
    checkpoint.save(at("c"), { a = 1 })
    for _, bad in ipairs({ print, coroutine.create(print), { f = print }, { [{}] = 1 },
      nn.Module }) do
      raises("TypeError", nil, function()
        checkpoint.save(at("c"), { a = bad })
      end)
    end
    local cycle = {}
    cycle[1] = cycle
    raises("ValueError", "nested", function()
      checkpoint.save(at("c"), { a = cycle })
    end)
    assert.equal(1, checkpoint.load(at("c")).a)
    assert.equal("./c\n./c/manifest.json\n./c/state.json\n", listed())
  end)

  it("have names that are files'", function()
    for _, name in ipairs({ "../x", "a/b", ".hidden", "-x", "", "a b", "ä", ("n"):rep(201) }) do
      raises("ValueError", "name", function()
        checkpoint.save(at("c"), { [name] = 1 })
      end)
    end
    raises("TypeError", "name", function()
      checkpoint.save(at("c"), { 1 })
    end)
    assert.equal("", listed())
  end)
end)

describe("a folder", function()
  it("has a module's tensors as any reader of safetensors knows them", function()
    local model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    checkpoint.save(at("c"), { model = model, epoch = 3 })
    local tensors = safetensors.load_file(at("c/model.safetensors"))
    local names = {}
    for name, value in pairs(model:state_dict()) do
      names[#names + 1] = name
      assert.equal(value:tobytes(), tensors[name]:tobytes())
    end
    assert.equal(7, #names)
    assert.equal("./manifest.json\n./model.safetensors\n./state.json\n", listed(at("c")))
  end)

  it("says the bytes and the XXH3 of its files", function()
    checkpoint.save(at("c"), { x = torch.rand(1000) }, { note = "n" })
    local manifest = core.json_decode(files.read(at("c/manifest.json")), "manifest")
    assert.equal("lupine.checkpoint", manifest.format)
    assert.equal(1, manifest.version)
    for name, file in next, manifest.files do
      local bytes = files.read(at("c/" .. name))
      assert.equal(#bytes, file.bytes)
      assert.equal(core.xxh3(bytes), file.xxh3)
    end
    assert.same({ note = "n" }, checkpoint.info(at("c")))
    local _, info = checkpoint.load(at("c"))
    assert.same({ note = "n" }, info)
  end)

  it("is made with those around it, and replaced as a whole", function()
    checkpoint.save(at("a/b/c/"), { x = torch.ones(3), y = 1 })
    checkpoint.save(at("a/b/c"), { y = 2 })
    assert.equal("./manifest.json\n./state.json\n", listed(at("a/b/c")))
    assert.equal("./a\n./a/b\n./a/b/c\n", listed():gsub("%./a/b/c/[^\n]+\n", ""))
  end)

  it("that is no checkpoint is not replaced", function()
    program.shell(("mkdir %s && touch %s/mine"):format(at("c"), at("c")))
    raises("ValueError", "no checkpoint", function()
      checkpoint.save(at("c"), { y = 1 })
    end)
    assert.equal("./c\n./c/mine\n", listed())
    files.write(at("file"), "mine")
    raises("OSError", nil, function()
      checkpoint.save(at("file"), { y = 1 })
    end)
    raises("OSError", nil, function()
      checkpoint.save(at("file/c"), { y = 1 })
    end)
    assert.equal("mine", files.read(at("file")))
    for _, bad in ipairs({ "", "/", ".", "x/..", "/proc/none/c" }) do
      assert.has_error(function()
        checkpoint.save(bad, { y = 1 })
      end)
    end
  end)
end)

-- Every damage of a file is a function of its bytes.
local DAMAGES = {
  ["cut short"] = function(b)
    return b:sub(1, -2)
  end,
  empty = function()
    return ""
  end,
  ["one bit flipped"] = function(b)
    local i = #b // 2 + 1
    return b:sub(1, i - 1) .. string.char(b:byte(i) ~ 1) .. b:sub(i + 1)
  end,
  longer = function(b)
    return b .. " "
  end,
}

describe("damage", function()
  local all

  before_each(function()
    torch.manual_seed(3)
    all = { model = nn.Linear(20, 3), epoch = 3 }
    checkpoint.save(at("c"), all)
  end)

  for name, damage in pairs(DAMAGES) do
    it(("of a file that is %s is told and nothing is restored"):format(name), function()
      for _, file in ipairs({ "manifest.json", "state.json", "model.safetensors" }) do
        local bytes = files.read(at("c/" .. file))
        files.write(at("c/" .. file), damage(bytes))
        local model = nn.Linear(20, 3)
        local before = model.weight:tobytes()
        raises("ValueError", file:gsub("%p", "%%%0"), function()
          checkpoint.restore(at("c"), { model = model })
        end)
        assert.equal(before, model.weight:tobytes())
        files.write(at("c/" .. file), bytes)
      end
      assert.equal(3, checkpoint.load(at("c")).epoch)
    end)
  end

  it("of any byte of the manifest is found", function()
    local bytes = files.read(at("c/manifest.json"))
    for i = 1, #bytes do
      files.write(at("c/manifest.json"), bytes:sub(1, i - 1) .. string.char(bytes:byte(i) ~ 4)
        .. bytes:sub(i + 1))
      assert.is_false(pcall(checkpoint.info, at("c")))
    end
  end)

  it("is a missing file, and one that is none", function()
    for _, file in ipairs({ "manifest.json", "state.json", "model.safetensors" }) do
      program.shell(("mv %s %s"):format(at("c/" .. file), at("x")))
      raises("ValueError", file:gsub("%p", "%%%0"), loading("c"))
      program.shell("mkfifo " .. at("c/" .. file))
      assert.has_error(function()
        checkpoint.load(at("c"))
      end)
      program.shell(("rm %s; mv %s %s"):format(at("c/" .. file), at("x"), at("c/" .. file)))
    end
    raises("FileNotFoundError", "no checkpoint", loading("none"))
  end)

  -- A manifest with the checksum that it ought to have.
  local function signed(manifest)
    manifest.checksum = ("0"):rep(16)
    local text = core.json_encode(manifest)
    return (text:gsub("0000000000000000", core.xxh3(text), 1))
  end

  it("is a manifest that is whole and says what cannot be", function()
    local text = files.read(at("c/manifest.json"))
    local function with(change)
      local manifest = core.json_decode(text, "manifest")
      change(manifest)
      files.write(at("c/manifest.json"), signed(manifest))
    end
    with(function() end)
    assert.equal(3, checkpoint.load(at("c")).epoch)
    for message, change in pairs({
      ["format 2"] = function(m) m.version = 2 end,
      ["no manifest"] = function(m) m.format = "other" end,
      ["described wrongly"] = function(m) m.files["../x"] = { bytes = 1, xxh3 = "0" } end,
      ["bytes"] = function(m) m.files["state.json"].bytes = math.maxinteger end,
      ["does not name"] = function(m) m.files["state.json"] = nil end,
      ["info"] = function(m) m.info = 1 end,
      ["damaged"] = function(m) m.info = { map = 1 } end,
    }) do
      with(change)
      raises("ValueError", message, loading("c"))
    end
  end)

  it("leaves the random numbers alone, and so does loading", function()
    local now, lua = torch.get_rng_state(), core.lua_random()
    checkpoint.save(at("d"), { random = checkpoint.random, model = all.model })
    checkpoint.load(at("d"))
    checkpoint.restore(at("d"), { model = all.model })
    assert.is_true(torch.equal(now, torch.get_rng_state()))
    assert.is_true(torch.equal(lua, core.lua_random()))
    local x, y = torch.rand(3), math.random()
    checkpoint.restore(at("d"), { random = checkpoint.random })
    assert.equal(x:tobytes(), torch.rand(3):tobytes())
    assert.equal(y, math.random())
  end)
end)

describe("buffers", function()
  it("are those that state_dict leaves out", function()
    local model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    assert.is_nil(checkpoint.buffers(model))
    model[2]:register_buffer("seen", torch.tensor({ 1.0, 2.0 }), { persistent = false })
    local buffers = checkpoint.buffers(model)
    assert.same({ "1.seen" }, tables.keys(buffers:state_dict()))
    checkpoint.save(at("e"), { buffers = buffers })
    local seen = model[2].seen
    seen:zero_()
    checkpoint.restore(at("e"), { buffers = checkpoint.buffers(model) })
    assert.equal(seen, model[2].seen)
    assert.same({ 1.0, 2.0 }, seen:tolist())
    model[2]:register_buffer("seen", torch.zeros({ 3, 2 }), { persistent = false })
    local function restore()
      checkpoint.restore(at("e"), { buffers = checkpoint.buffers(model) })
    end
    raises("ValueError", "'1.seen': expected a tensor of shape", restore)
    model[1]:register_buffer("other", torch.zeros({ 3 }), { persistent = false })
    model[2]:register_buffer("seen", torch.zeros({ 2 }), { persistent = false })
    raises("KeyError", "there is no '0.other'", restore)
    raises("TypeError", "buffers: expected a torch.nn.Module, got", function()
      checkpoint.buffers(3)
    end)
  end)
end)

describe("objects", function()
  it("take their states over: modules, optimizers, others, devices, random numbers", function()
    local order = {}
    local function object(name, more)
      local o = { name = name, state_dict = function()
        return { of = name }
      end, load_state_dict = function(_, state)
        assert.equal(name, state.of)
        order[#order + 1] = name
      end }
      for key, value in pairs(more or {}) do
        o[key] = value
      end
      return o
    end
    local function none()
      return function() end
    end
    local device = object("a", { named_parameters = none })
    device.checkpoint_state, device.load_checkpoint_state = device.state_dict,
      device.load_state_dict
    local objects = { a = device, b = object("b"), c = object("c", { checkpoint_rank = 5 }),
      d = object("d", { checkpoint_rank = 4 }), m = object("m", { param_groups = {} }),
      y = object("y", { named_parameters = none }), z = object("z", { named_parameters = none }) }
    checkpoint.save(at("o"), objects)
    checkpoint.restore(at("o"), objects)
    assert.equal("y z m b a d c", table.concat(order, " "))
  end)

  it("that are missing are named with what is there", function()
    checkpoint.save(at("c"), { model = nn.Linear(1, 1), epoch = 1 })
    raises("KeyError", "'modell'.*epoch, model", function()
      checkpoint.restore(at("c"), { modell = nn.Linear(1, 1) })
    end)
  end)

  it("that do not fit say which and why", function()
    checkpoint.save(at("c"), { model = nn.Linear(1, 1) })
    raises("RuntimeError", "model: .*size mismatch for weight", function()
      checkpoint.restore(at("c"), { model = nn.Linear(2, 1) })
    end)
  end)

  it("are a Generator and whatever has the two methods; the rest are values", function()
    local Counter = { n = 0 }
    function Counter:state_dict()
      return { n = self.n }
    end
    function Counter:load_state_dict(state)
      self.n = state.n
    end
    local g = torch.Generator():manual_seed(9)
    torch.rand({ 5 }, { generator = g })
    Counter.n = 7
    checkpoint.save(at("c"), { g = g, counter = Counter, list = { 1, 2 }, x = torch.ones(2) })
    local want = torch.rand({ 3 }, { generator = g })
    Counter.n = 0
    local values = checkpoint.restore(at("c"), { g = g, counter = Counter, list = {}, x = 1 })
    assert.equal(want:tobytes(), torch.rand({ 3 }, { generator = g }):tobytes())
    assert.equal(7, Counter.n)
    assert.same({ 1, 2 }, values.list)
    assert.equal(2, values.x:numel())
    assert.is_nil(values.counter)
  end)

  local function trained(order)
    local model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    local params = {}
    for i, k in ipairs(order) do
      params[i] = model:parameters()[k]
    end
    return model, torch.optim.Adam(params, { lr = 0.1 })
  end

  it("match an optimizer's parameters by name, not by their order", function()
    local model, optimizer = trained({ 1, 2, 3, 4 })
    model(torch.rand(5, 2)):sum():backward()
    optimizer:step()
    checkpoint.save(at("c"), { model = model, optimizer = optimizer })
    local model2, optimizer2 = trained({ 3, 1, 4, 2 })
    checkpoint.restore(at("c"), { model = model2, optimizer = optimizer2 })
    for i, p in ipairs(model:parameters()) do
      local state = optimizer2.state[model2:parameters()[i]]
      for name, value in pairs(optimizer.state[p]) do
        assert.equal(value:tobytes(), state[name]:tobytes())
      end
    end
    local model3, optimizer3 = trained({ 1, 2, 3 })
    raises("ValueError", "3 parameters, that of the state 4", function()
      checkpoint.restore(at("c"), { model = model3, optimizer = optimizer3 })
    end)
    local other = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    raises("ValueError", "no parameter 'model.2.weight'", function()
      checkpoint.restore(at("c"), { optimizer = torch.optim.Adam(other:parameters(), { lr = 1 }),
        model = setmetatable({ named_parameters = function()
          return other:named_parameters()
        end }, nil) })
    end)
  end)

  it("go by their numbers where nothing names them", function()
    local w = torch.ones(3):requires_grad_()
    local optimizer = torch.optim.SGD({ w }, { lr = 0.1, momentum = 0.9 })
    w:sum():backward()
    optimizer:step()
    checkpoint.save(at("c"), { optimizer = optimizer })
    local w2 = torch.ones(3):requires_grad_()
    local again = torch.optim.SGD({ w2 }, { lr = 0.5, momentum = 0.9 })
    checkpoint.restore(at("c"), { optimizer = again })
    assert.equal(0.1, again.param_groups[1].lr)
    assert.equal(optimizer.state[w].momentum_buffer:tobytes(),
      again.state[w2].momentum_buffer:tobytes())
  end)

  it("that a device runs keep what inference wrote into buffers, of each replica", function()
    local Count = nn.Module:extend("Count")
    function Count:init()
      self:register_buffer("seen", torch.zeros(2))
    end
    function Count:forward(x)
      self.seen:add_(x:sum(0))
      return self.seen * 1
    end
    local function make()
      local options = poptorch.Options():replicationFactor(2):broadcastBuffers(false)
      options:outputMode(poptorch.OutputMode.All)
      return poptorch.inferenceModel(Count(), options)
    end
    local first = make()
    first(torch.tensor({ { 1.0, 2 }, { 10, 20 } }))
    checkpoint.save(at("c"), { model = first })
    local want = first(torch.ones(2, 2)):tolist()
    local second = make()
    checkpoint.restore(at("c"), { model = second })
    assert.same(want, second(torch.ones(2, 2)):tolist())
    checkpoint.restore(at("c"), { model = first })
    assert.same(want, first(torch.ones(2, 2)):tolist())
    first:detachFromDevice()
    checkpoint.restore(at("c"), { model = first })
    assert.same(want, first(torch.ones(2, 2)):tolist())
  end)
end)
