-- What a Trainer does at its edges: where nothing is due, nothing was trained, a value is
-- no tensor, or a loader has no state.
local batch = require("lupine.trainer.batch")
local helper = require("spec.helper")
local lupine = require("lupine")
local Measures = require("lupine.trainer.measures")
local tables = require("lupine.base.tables")
local torch = require("torch")
local trainings = require("spec.support.trainings")
local nn = torch.nn

local function batches(count, size)
  torch.manual_seed(3)
  local out = {}
  for i = 1, count do
    out[i] = { torch.randn({ size or 4, 3 }), torch.randint(0, 3, { size or 4 }) }
  end
  return out
end

local function make(other)
  torch.manual_seed(1)
  local model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
  local set = { model = model, loss = nn.CrossEntropyLoss(), mode = "eager", progress = false,
    optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) }
  for name, value in pairs(other) do
    set[name] = value
  end
  return lupine.Trainer(set)
end

describe("a Trainer", function()
  it("goes on in the middle of an epoch of a loader without a state", function()
    for _, mode in ipairs({ "eager", "compiled" }) do
      assert.same({}, trainings.faults(mode, { [3] = true, [4] = true }, { train = batches(9) }))
    end
  end)

  it("saves where that is due only", function()
    local steps, root = {}, os.tmpname()
    os.remove(root)
    finally(function()
      os.execute("rm -rf " .. root)
    end)
    make({ train = batches(2), validation = batches(1), validate_every = "100 steps", epochs = 5,
      checkpoint_every = "2 epochs", checkpoints = lupine.checkpoint.Manager(root), callbacks = {
        { on_checkpoint = function(_, t)
          steps[#steps + 1] = t.step
        end } } }):fit()
    assert.same({ 4, 8, 10 }, steps)
  end)

  it("has what goes on in its checkpoints, and nothing else", function()
    local weighted = nn.CrossEntropyLoss({ weight = torch.ones({ 3 }) })
    local plain = "model optimizer random trainer"
    assert.equal(plain, table.concat(tables.keys(make({ train = batches(1) }):objects()), " "))
    assert.equal("loss " .. plain, table.concat(tables.keys(make({ train = batches(1),
      loss = weighted }):objects()), " "))
    assert.equal("loader model optimizer random trainer", table.concat(tables.keys(make({
      mode = "compiled", validation = torch.utils.data.DataLoader(trainings.Points(4)),
      train = torch.utils.data.DataLoader(trainings.Points(4)) }):objects()), " "))
  end)

  it("goes on in another mode, near to what its own gives", function()
    local root = os.tmpname()
    os.remove(root)
    finally(function()
      os.execute("rm -rf " .. root)
    end)
    local function new(mode, epochs)
      torch.manual_seed(1)
      local model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
      return make({ model = model, mode = mode, epochs = epochs, accumulation = 2,
        optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.05 }), train = batches(5) })
    end
    for mode, other in pairs({ eager = "compiled", compiled = "eager" }) do
      local first, whole = new(mode, 2), new(mode, 4)
      first:fit()
      lupine.checkpoint.save(root, first:objects())
      whole:fit()
      local rest = new(other, 4)
      rest:resume(root)
      rest:fit()
      assert.same({ whole.step, whole.epoch }, { rest.step, rest.epoch })
      for name, t in pairs(whole.model:state_dict()) do
        helper.near(rest.model:state_dict()[name], t, { 1e-5, 1e-4 })
      end
    end
  end)

  it("validates weights that were loaded since, while there is no mean of them", function()
    local t = make({ train = batches(1), ema_decay = 0.9 })
    local list = batches(2)
    local before = t:validate(list)["validation.loss"]
    torch.no_grad(function()
      t.model[1].weight:mul_(50)
    end)
    local other = make({ train = batches(1) })
    other.model:load_state_dict(t.model:state_dict())
    local after = t:validate(list)["validation.loss"]
    assert.is_true(math.abs(after - before) > 1e-3)
    assert.equal(other:validate(list)["validation.loss"], after)
  end)

  it("predicts tables of tensors, scalars, and values that are none", function()
    local Told = nn.Module:extend("Told")
    function Told:init()
      self.inner = nn.Linear(3, 2)
    end
    function Told:forward(x)
      return { y = self.inner(x), mean = x:mean(), kind = "told", size = x:size(0) }
    end
    local model = Told()
    local t = lupine.Trainer({ model = model, loss = nn.MSELoss(), mode = "eager",
      progress = false, optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) })
    local list = { { torch.ones({ 2, 3 }) }, { torch.zeros({ 1, 3 }) } }
    local out = t:predict(list)
    assert.same({ 3, 2 }, { table.unpack(out.y.shape) })
    assert.same({ 1.0, 0.0 }, out.mean:tolist())
    assert.same({ { "told", "told" }, { 2, 1 } }, { out.kind, out.size })
    assert.is_false(out.y.requires_grad)
  end)
end)

describe("a batch", function()
  local x, y = torch.ones({ 2, 3 }), torch.zeros({ 2 })
  local two, one = torch.tensor(2.0), torch.tensor({ 1.0 })

  it("has as many samples as its first tensor has rows", function()
    assert.equal(2, batch.samples({ n = 2, x, one }))
    assert.equal(1, batch.samples({ n = 2, two, x }))
    assert.equal(2, batch.samples({ n = 1, { mask = { 3, x }, other = one } }))
    assert.equal(1, batch.samples({ n = 1, { a = "text", b = one, c = x } }))
    assert.equal(0, batch.samples({ n = 1, "text" }))
  end)

  it("is a list of values, or they are given one by one", function()
    local function next_of(...)
      local values = table.pack(...)
      local got = batch.next(function()
        return table.unpack(values, 1, values.n)
      end)
      return got.n, got[1], got[2]
    end
    assert.same({ 0 }, { next_of() })
    assert.same({ 2, x, y }, { next_of({ x, y }) })
    assert.same({ 2, x, y }, { next_of(x, y) })
    assert.same({ 1, x }, { next_of(x) })
  end)

  it("gives metrics the output and the target that are meant", function()
    assert.equal(x, batch.output({ n = 2, two, x }, two))
    assert.equal(two, batch.output({ n = 2, two, x }, nil))
    assert.equal(y, batch.output({ n = 1, { logits = y, output = x } }))
    assert.equal(x, batch.output({ n = 1, { prediction = y, out = x } }))
    assert.equal(y, batch.output({ n = 2, { loss = x }, { { y } } }))
    assert.is_nil(batch.output({ n = 1, two }, two))
    local none = { _targets = {} }
    assert.equal(y, batch.target(none, { n = 2, x, y }))
    assert.is_nil(batch.target(none, { n = 1, x }))
    assert.equal(y, batch.target(none, { n = 1, { x = x, target = y } }))
    assert.equal(x, batch.target(none, { n = 2, y, { y = y, labels = x } }))
    assert.is_nil(batch.target(none, { n = 2, y, { other = x } }))
  end)

  it("has the loss that forward returned", function()
    assert.equal(one, batch.loss({ n = 3, two, x, one }))
    assert.equal(two, batch.loss({ n = 2, { loss = two }, x }))
    assert.is_nil(batch.loss({ n = 2, x, torch.tensor(3) }))
    assert.equal(2, batch.number(two))
    assert.equal(1.5, batch.number(torch.tensor({ 1.0, 2.0 })))
    assert.equal(3, batch.number({ a = two, b = one }))
    assert.equal(7, batch.number(7))
    assert.is_nil(batch.number("text"))
    assert.is_nil(batch.number({}))
  end)
end)

describe("measures", function()
  it("give functions the output, then the target, and weigh by samples", function()
    local m, numbers = Measures({ first = function(output, target)
      return output[0]:item() - target[0]:item()
    end }), {}
    m:update(torch.tensor({ 5.0, 1.0, 1.0 }), torch.tensor({ 2.0 }))
    m:update(torch.tensor({ 8.0 }), torch.tensor({ 1.0 }))
    m:compute(numbers, "")
    assert.equal((3 * 3 + 7) / 4, numbers.first)
  end)

  it("have nothing to tell before the first batch of an epoch", function()
    local m, numbers, others = Measures({ "accuracy", "confusion" }), {}, {}
    m:compute(numbers, "", others)
    assert.same({ {}, {} }, { numbers, others })
    m:update(torch.tensor({ { 0.0, 1.0 } }), torch.tensor({ 1 }))
    m:compute(numbers, "a.", others)
    assert.equal(1, numbers["a.accuracy"])
    assert.same({ { 0, 0 }, { 0, 1 } }, others["a.confusion"]:tolist())
    m:reset()
    numbers, others = {}, {}
    m:compute(numbers, "", others)
    assert.same({ {}, {} }, { numbers, others })
  end)
end)
