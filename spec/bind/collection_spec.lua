--- Lua's collector in generational mode, which torch switches on: every kind of
--- object and every barrier under young collections at any moment, against a model
--- that is known without them; what collections cost; and when garbage is found.
local program = require("spec.support.program")
local torch = require("torch")

-- A generator of its own: the same steps each time.
local function numbers(seed)
  local state = seed
  return function(n)
    state = (state * 1103515245 + 12345) % 2147483648
    return state // 65536 % n + 1
  end
end

describe("the collector", function()
  it("is in generational mode", function()
    local before = collectgarbage("incremental")
    collectgarbage("generational")
    assert.equal("generational", before)
  end)

  -- Cells hold a number in a tensor, and others; `model` has the same as numbers and
  -- keys, which no collection can take from it.
  it("keeps what is reached from old objects, however it got there", function()
    for seed = 1, 6 do
      local random = numbers(seed)
      local kinds = {
        function(v) -- a table
          local t = { v }
          return function() return t[1] end, function(w) t[1] = w end
        end,
        function(v) -- an upvalue
          return function() return v end, function(w) v = w end
        end,
        function(v) -- a stack of a coroutine
          local co = coroutine.wrap(function()
            local held = v
            while true do
              held = coroutine.yield(held) or held
            end
          end)
          co()
          return co, co
        end,
        function(v) -- a metatable
          local t = setmetatable({}, { value = v })
          return function() return getmetatable(t).value end,
            function(w) setmetatable(t, { value = w }) end
        end,
        function(v) -- an ephemeron: kept by its key
          local key = {}
          local weak = setmetatable({ [key] = v }, { __mode = "k" })
          return function() return weak[key] end, function(w) weak[key] = w end
        end,
      }
      local cells, model = {}, {}
      for step = 1, 6000 do
        local at, value = random(40), random(1000)
        local cell = cells[at]
        if not cell or random(8) == 1 then
          local get, set = kinds[random(#kinds)](torch.full({ 3 }, value))
          cells[at] = { get = get, set = set }
        else
          cell.set(torch.full({ 3 }, value))
        end
        model[at] = value
        if random(3) == 1 then
          collectgarbage("step", 0)
        elseif random(500) == 1 then
          collectgarbage()
        end
        local look = random(40)
        if cells[look] then
          local t = cells[look].get()
          assert(t[1]:item() == model[look], ("seed %d, step %d"):format(seed, step))
        end
      end
    end
  end)

  it("runs finalizers that bring objects back, and closes what is closed", function()
    local random, brought, closed = numbers(7), {}, 0
    for step = 1, 3000 do
      local name = "object " .. step
      setmetatable({ value = { step }, name = name, t = torch.zeros(2) }, {
        __gc = function(o)
          if random(4) == 1 then
            brought[#brought + 1] = o
          end
        end,
      })
      do
        local _ <close> = setmetatable({}, { __close = function() closed = closed + 1 end })
        collectgarbage("step", 0)
      end
    end
    collectgarbage()
    assert.is_true(#brought > 300)
    for _, o in ipairs(brought) do
      assert.equal(tonumber(o.name:match("%d+")), o.value[1])
    end
    assert.equal(3000, closed)
  end)

  it("empties weak tables of young and old values alike", function()
    local weak = setmetatable({}, { __mode = "v" })
    for i = 1, 200 do
      weak[i] = torch.full({ 2 }, i)
      if i % 7 == 0 then
        collectgarbage("step", 0)
      end
    end
    collectgarbage()
    assert.is_nil(next(weak))
  end)

  -- What is held until its successor is there, as by a script's `y = f(x)`.
  for name, f in pairs({
    ["an operator"] = function(x)
      return x + 1
    end,
    ["a copy of a view"] = function(x)
      return x:flatten():expand({ 2, -1 }):contiguous()
    end,
    ["a gradient"] = function(x)
      local leaf = x:detach():requires_grad_()
      return torch.autograd.grad({ leaf:neg() }, { leaf }, { x })[1]
    end,
  }) do
    it("gives a dropped tensor's memory to the next of its size: " .. name, function()
      if program.build:find("asan") then
        return -- a sanitized host keeps what was freed
      end
      local x, seen = torch.zeros(1 << 20), {}
      local held = f(x)
      for i = 1, 400 do
        held = f(x)
        if i > 200 then -- the pace was set by others
          seen[held:data_ptr()] = true
        end
      end
      assert.is_true(held:numel() >= x:numel())
      local n = 0
      for _ in pairs(seen) do
        n = n + 1
      end
      assert.is_true(n <= 8, n .. " places")
    end)
  end
end)
