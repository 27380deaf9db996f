-- torch.save and torch.load: values come back, names are the module's own.
local helper = require("spec.helper")
local ordered = require("torch.nn.ordered")
local safetensors = require("lupine.safetensors")
local torch = require("torch")
local nn = torch.nn

local path

setup(function()
  path = os.tmpname()
end)
teardown(function()
  os.remove(path)
end)

local function again(value)
  torch.save(value, path)
  return torch.load(path)
end

describe("torch.save and torch.load keep", function()
  it("a state_dict under its own names, in its order, for any reader", function()
    local net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    local state = net:state_dict()
    local back = again(state)
    local names, other = {}, {}
    for name, t in pairs(state) do
      names[#names + 1] = name
      assert.is_true(torch.equal(t, back[name]))
      assert.equal(t.dtype, back[name].dtype)
    end
    for name in pairs(back) do
      other[#other + 1] = name
    end
    assert.same(names, other)
    local plain = safetensors.load_file(path)
    assert.is_true(torch.equal(state["0.weight"], plain["0.weight"]))
    assert.same({ format = "pt" }, safetensors.metadata(path))
    local copy = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert.equal("<All keys matched successfully>", tostring(copy:load_state_dict(back)))
  end)

  it("an optimizer's state, so that training goes on with the same numbers", function()
    local function train(net, optimizer, steps)
      torch.manual_seed(3)
      for _ = 1, steps do
        optimizer:zero_grad()
        net(torch.ones({ 2, 3 })):pow(2):sum():backward()
        optimizer:step()
      end
    end
    local net = nn.Linear(3, 2)
    local optimizer = torch.optim.Adam(net:parameters(), 0.1)
    train(net, optimizer, 3)
    local checkpoint = again({ model = net:state_dict(), optimizer = optimizer:state_dict(),
      epoch = 3 })
    train(net, optimizer, 2)
    local net2 = nn.Linear(3, 2)
    net2:load_state_dict(checkpoint.model)
    local optimizer2 = torch.optim.Adam(net2:parameters(), 0.7)
    optimizer2:load_state_dict(checkpoint.optimizer)
    train(net2, optimizer2, 2)
    assert.equal(3, checkpoint.epoch)
    assert.is_true(torch.equal(net.weight, net2.weight))
  end)

  it("plain values: kinds of numbers, bytes, holes, lists, dtypes, sizes", function()
    local value = { 1, 1.0, -0.0, math.huge, -math.huge, math.maxinteger, 0.1, true, false, "",
      "ü", "\0\255", { {} }, { a = { 2 }, [3] = "three", [2.5] = "x" } }
    local back = again(value)
    assert.same(value, back)
    for i, v in ipairs(value) do
      assert.equal(math.type(v), math.type(back[i]))
    end
    assert.equal(-math.huge, 1 / back[3])
    local nan = again({ x = 0.0 / 0.0 }).x
    assert.is_true(nan ~= nan)
    assert.equal(torch.none, again({ x = torch.none }).x)
    assert.equal(torch.float16, again({ torch.float16 })[1])
    assert.equal(torch.Size({ 2, 3 }), again(torch.ones({ 2, 3 }).shape))
    assert.is_true(ordered.is_dict(again({ d = ordered.dict() }).d))
  end)

  it("tensors: alone, of every type, views, parameters, shared ones", function()
    for _, dtype in ipairs({ "float64", "float32", "float16", "bfloat16", "int64", "int32",
      "int16", "int8", "uint8", "bool" }) do
      local t = torch.tensor({ { 0, 1 }, { 1, 0 } }):to(torch[dtype])
      local back = again(t)
      assert.equal(t.dtype, back.dtype)
      assert.is_true(torch.equal(t, back))
    end
    local x = torch.arange(6):reshape({ 2, 3 })
    assert.same({ { 0, 3 }, { 1, 4 }, { 2, 5 } }, again(x:t()):tolist())
    local p = nn.Parameter(torch.ones({ 2 }))
    local leaf = torch.ones({ 2 }, { requires_grad = true })
    local back = again({ p = p, q = p, r = leaf, s = p.data })
    assert.is_true(rawequal(back.p, back.q))
    assert.is_true(nn.Parameter:is(back.p) and back.p.requires_grad and back.r.requires_grad)
    assert.is_true(torch.equal(back.s, torch.ones({ 2 })))
    assert.same({ 0 }, { table.unpack(again(torch.zeros({ 0 })).shape) })
  end)

  it("tied weights tied, and present under both names for other readers", function()
    local w = torch.randn({ 3 })
    local back = again({ ["a.weight"] = w, ["b.weight"] = w })
    assert.is_true(rawequal(back["a.weight"], back["b.weight"]))
    assert.is_true(torch.equal(w, safetensors.load_file(path)["b.weight"]))
  end)

  it("the random state as it was", function()
    torch.manual_seed(5)
    local want = torch.rand({ 3 })
    torch.manual_seed(5)
    again({ torch.ones({ 2 }) })
    assert.is_true(torch.equal(want, torch.rand({ 3 })))
  end)
end)

describe("torch.save refuses", function()
  it("what is no plain data, naming its place", function()
    for _, c in ipairs({
      { { a = { b = nn.Linear(1, 1) } }, "a%.b is Linear: save its state_dict%(%)" },
      { print, "obj is function" },
      { { [{}] = 1 }, "a key of the table is a table" },
      { { x = { print } }, "x%.0 is function" },
    }) do
      helper.raises("TypeError", c[2], function()
        torch.save(c[1], path)
      end)
    end
    local cycle = {}
    cycle.again = cycle
    helper.raises("ValueError", "a cycle", function()
      torch.save(cycle, path)
    end)
    helper.raises("TypeError", "f must be a path", function()
      torch.save({}, io.stdout)
    end)
  end)
end)

describe("torch.load refuses", function()
  it("places other than the host, and pickles", function()
    torch.save({}, path)
    helper.raises("ValueError", "map_location", function()
      torch.load(path, "cuda")
    end)
    assert.same({}, torch.load(path, { map_location = torch.device("cpu"), weights_only = true }))
    helper.raises("ValueError", "no code", function()
      torch.load(path, { weights_only = false })
    end)
    helper.raises("OSError", "No such file", function()
      torch.load(path .. ".none")
    end)
  end)

  it("damaged metadata, without running any of it", function()
    local x = { x = torch.ones({ 1 }) }
    for _, text in ipairs({ "", "{", "{}", '{"t":"y"}', '{"t":5}', '{"list":3}', '{"map":[1]}',
      '{"map":[[null,1]]}', '{"map":[[{"list":[]},1]]}', '{"map":[[{"float":"nan"},1]]}',
      '{"float":"1"}', '{"bytes":"0"}', '{"bytes":"zz"}', '{"dtype":"code"}', '{"size":["a"]}',
      '{"size":3}', '{"call":"os.exit"}', ("["):rep(3000) }) do
      safetensors.save_file(x, path, { lupine = text })
      helper.raises("ValueError", ".", function()
        torch.load(path)
      end)
    end
  end)
end)

describe("a pickle", function()
  it("is named", function()
    local file = os.tmpname()
    local f = assert(io.open(file, "wb"))
    f:write("\128\2\138\10l\252\156F\249 j\168P\25.")
    f:close()
    local ok, e = pcall(torch.load, file)
    os.remove(file)
    assert.is_false(ok)
    assert.matches("a pickle", e.message)
  end)
end)
