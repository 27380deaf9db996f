--- torch.use_deterministic_algorithms: bits that do not depend on the number of
--- threads. A convolution's weight gradient is the case that shows it: the
--- library sums it in as many parts as there are threads.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")
local weights = require("spec.support.weights")

local differs = weights.difference

local Net = nn.Module:extend("Net")

function Net:init()
  self.first = nn.Conv2d(3, 16, 3, { padding = 1 })
  self.second = nn.Conv2d(16, 32, 3, { padding = 1 })
  self.last = nn.Linear(32, 4)
  self.loss = nn.CrossEntropyLoss()
end

function Net:forward(x, target)
  x = torch.relu(self.second(torch.relu(self.first(x)))):mean({ 2, 3 })
  x = self.last(x)
  return x, self.loss(x, target)
end

local roads = {}

function roads.eager(net, optimizer, x, target)
  for _ = 1, 2 do
    optimizer:zero_grad()
    local _, loss = net(x, target)
    loss:backward()
    optimizer:step()
  end
end

function roads.compiled(net, optimizer, x, target)
  local opts = poptorch.Options():deviceIterations(2)
  local model = poptorch.trainingModel(net, opts, optimizer)
  model(torch.cat({ x, x }), torch.cat({ target, target }))
  model:destroy()
end

-- The weights after two steps.
local function train(road, threads, deterministic)
  torch.use_deterministic_algorithms(deterministic)
  torch.set_num_threads(threads)
  torch.manual_seed(3)
  local net = Net()
  local x, target = torch.randn(8, 3, 24, 24), torch.randint(0, 4, { 8 })
  roads[road](net, torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 }), x, target)
  return weights.copies(net)
end

for road in pairs(roads) do
  describe("a convolution model, " .. road .. ",", function()
    local threads = torch.get_num_threads()
    after_each(function()
      torch.use_deterministic_algorithms(false)
      torch.set_num_threads(threads)
    end)

    it("has the same bits with any number of threads when deterministic", function()
      local want = train(road, 1, true)
      for _, n in ipairs({ 2, 3, 4 }) do
        local name = differs(want, train(road, n, true))
        assert.is_nil(name, ("%s differs with %d threads"):format(name, n))
      end
    end)

    it("shows the number of threads in its bits otherwise", function()
      local one, four = train(road, 1, false), train(road, 4, false)
      if not differs(one, four) then
        return pending("this machine's library gives the same bits with 1 and 4 threads")
      end
      assert.is_nil(differs(one, train(road, 1, false)))
      assert.is_truthy(differs(one, train(road, 1, true)))
    end)
  end)
end

-- Prints the bits of a convolution's weight gradient.
local GRADIENT = [[
  local torch = require("torch")
  torch.use_deterministic_algorithms(true)
  torch.manual_seed(3)
  local x, w = torch.randn(8, 16, 24, 24), torch.randn(32, 16, 3, 3, {requires_grad = true})
  torch.nn.functional.conv2d(x, w):tanh():sum():backward()
  local bits = {}
  for i, v in ipairs(w.grad:flatten():tolist()) do bits[i] = ("%a"):format(v) end
  print(table.concat(bits, " "))
]]

describe("a process with OMP_THREAD_LIMIT", function()
  local function shown(limit, threads)
    local set = limit == "" and "env -u OMP_THREAD_LIMIT " or ("OMP_THREAD_LIMIT=%d "):format(limit)
    return program.shell(set .. ("OMP_NUM_THREADS=%d %s -e %s"):format(threads, program.host,
      program.quote(GRADIENT)))
  end

  it("of 4 or more has the bits of any other with deterministic algorithms", function()
    local want, err, code = shown("", 1)
    assert.equal(0, code, err)
    assert.equal(32 * 16 * 9, select(2, want:gsub("0x", "")))
    for _, case in ipairs({ { 4, 1 }, { 4, 2 }, { 5, 3 }, { "", 4 } }) do
      local got = shown(table.unpack(case))
      assert.is_true(want == got, "limit, threads: " .. table.concat(case, ", "))
    end
  end)

  it("below 4 refuses deterministic algorithms, with the limit and what is needed", function()
    for limit = 1, 3 do
      local out, err, code = shown(limit, 1)
      assert.equal(1, code)
      assert.equal("", out)
      assert.matches(("RuntimeError: use_deterministic_algorithms: OMP_THREAD_LIMIT is %d, but "
        .. "deterministic algorithms need 4 or more"):format(limit), err)
    end
  end)

  it("below 4 computes all the same without them", function()
    local out, err, code = program.shell("OMP_THREAD_LIMIT=2 " .. program.host .. " -e "
      .. program.quote("local torch = require('torch') "
        .. "torch.use_deterministic_algorithms(false) "
        .. "print(torch.are_deterministic_algorithms_enabled(), torch.ones(3):sum():item())"))
    assert.equal(0, code, err)
    assert.equal("false\t3.0\n", out)
  end)
end)
