-- What happens when memory is short: an error object, nothing lost.
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")

-- Makes the n-th allocation fail for n = 1, 2, …, and then all after it too: the
-- call is retried once after a collection, or reported; either way no block may
-- be left over.
local function sweep(fn)
  fn() -- caches fill
  collectgarbage()
  collectgarbage()
  local kinds, before = {}, core.mem_live()
  for i = 2, 81 do -- each alone, then with all after it
    local n, lasting = i // 2, i % 2 == 1
    core.mem_fail_at(n, lasting)
    do
      local ok, e = pcall(fn)
      core.mem_fail_at(0)
      if not ok then
        kinds[e.type or tostring(e)] = true
      end
    end
    local after = core.mem_live()
    if after > before then
      collectgarbage()
      collectgarbage()
      after = core.mem_live()
    end
    if after > before then
      error(("allocation %d: %d blocks are left"):format(n, after - before))
    end
  end
  return kinds
end

describe("a failed allocation", function()
  local x, y
  before_each(function()
    torch.get_default_dtype()
    x = torch.tensor({ { 1.0, 2 }, { 3, 4 } })
    y = torch.tensor({ { 1.0, 2 }, { 3, 4 } })
  end)

  local calls = {
    tensor = function() return torch.tensor({ { 1, 2 }, { 3, 4 } }) end,
    add = function() return x + y end,
    ["add with out"] = function() return torch.add(x, y, { out = y }) end,
    ["in place"] = function() return x:mul_(1) end,
    view = function() return x:view(4) end,
    index = function() return x["0, ::2"] end,
    ["index by tensor"] = function() return x[torch.tensor({ 0 })] end,
    split = function() return x:split(1) end,
    sort = function() return x:sort() end,
    cast = function() return x:half() end,
    contiguous = function() return x.T:contiguous() end,
    meta = function() return torch.full({ 2 }, 1.0, { device = "meta" }) end,
    backward = function()
      local w = torch.tensor({ 2.0 }, { requires_grad = true })
      local z = w * w
      z:backward()
    end,
  }
  for name, fn in pairs(calls) do
    it("is retried or reported, and leaks nothing: " .. name, function()
      for kind in pairs(sweep(fn)) do
        assert.equal("out_of_memory", kind)
      end
    end)
  end
end)

describe("small tensors", function()
  it("never share memory, however often they come and go", function()
    local kept = {}
    for round = 1, 3 do
      for i = 1, 6000 do
        local n = i % 140 -- up to 560 bytes: within and beyond what is pooled
        if i % round == 0 then
          kept[i] = torch.full({ n }, i + round * 1e4)
        end
      end
      collectgarbage()
      for i = 1, 6000 do
        local x = kept[i]
        local of = x:numel() > 0 and x:max():item()
        local made = i % round == 0 and round or kept[-i]
        kept[-i] = made
        assert.equal(x:numel() > 0 and i + made * 1e4, of)
      end
    end
  end)

  it("are aligned to 64 bytes and count with the bytes they have", function()
    collectgarbage()
    collectgarbage()
    local before = core.memory().live
    local x = torch.empty({ 100 })
    local y = torch.empty({ 3 })
    assert.equal(412, core.memory().live - before)
    assert.equal(0, x:data_ptr() % 64)
    assert.equal(0, y:data_ptr() % 64)
  end)
end)

describe("room that is zeroed", function()
  local function resident()
    local file <close> = assert(io.open("/proc/self/statm"))
    return select(2, file:read("n", "n")) * 4096
  end

  it("holds zeros, whatever it held, of every size", function()
    for _, n in ipairs({ 0, 1, 100, 65535, 65537, 300001, 1000003 }) do
      local x = torch.full({ n }, 3.0)
      core.zero_room(x)
      assert.equal(0, x:count_nonzero():item())
    end
    core.zero_room(torch.empty({ 5 }, { device = "meta" }))
  end)

  it("takes no memory before it is touched", function()
    local x = torch.ones({ 16 << 20 })
    local before = resident()
    core.zero_room(x)
    assert.is_true(before - resident() > 60 << 20)
    assert.equal(0, x[12345678]:item())
  end)

  it("is a whole tensor of the heap", function()
    local x = torch.ones({ 4, 2 })
    helper.raises("ValueError", "room must be newly made", function()
      core.zero_room(x[1])
    end)
    assert.equal(8, x:sum():item())
  end)
end)
