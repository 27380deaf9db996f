-- Callbacks that are there, names of callbacks, and what a terminal and a log see.
local callbacks = require("lupine.trainer.callbacks")
local program = require("spec.support.program")
local torch = require("torch")
local Trainer = require("lupine.trainer")
local nn = torch.nn

local function make(other)
  torch.manual_seed(1)
  local set = torch.utils.data.TensorDataset(torch.randn({ 32, 2 }), torch.randint(0, 2, { 32 }))
  local model = nn.Linear(2, 2)
  local options = { model = model, optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }),
    loss = nn.CrossEntropyLoss(), train = torch.utils.data.DataLoader(set, { batch_size = 8 }),
    validation = torch.utils.data.DataLoader(set, { batch_size = 8 }), epochs = 3,
    progress = false, mode = "eager" }
  for name, value in pairs(other) do
    options[name] = value
  end
  return Trainer(options)
end

describe("callbacks", function()
  it("stop after a time", function()
    local result = make({ callbacks = { callbacks.TimeLimit({ minutes = 0 }) } }):fit()
    assert.same({ "stopped", "the limit of 0 minutes", 1 }, { result.reason, result.why,
      result.step })
    assert.equal("finished",
      make({ callbacks = { callbacks.TimeLimit({ minutes = 60 }) } }):fit().reason)
  end)

  it("stop where a goal is reached", function()
    local n = 0
    local result = make({ metrics = { made = function()
      n = n + 0.125
      return n -- 4 batches each: means of 0.3125, 0.8125, …
    end }, validate_every = "1 epoch",
      callbacks = { callbacks.Goal({ metric = "validation.made", min = 1 }) } }):fit()
    assert.equal("stopped", result.reason)
    assert.matches("^validation.made is ", result.why)
    local ok, e = pcall(make({ callbacks = { callbacks.Goal({ metric = "accuracy",
      max = 1 }) } }).fit, make({ callbacks = { callbacks.Goal({ metric = "accuracy",
      max = 1 }) } }))
    assert.is_false(ok)
    assert.matches("callback 'Goal': on_validation: there is no metric 'accuracy'", e.message)
  end)

  it("print lines", function()
    local path = os.tmpname()
    local stream = io.open(path, "w")
    make({ epochs = 1, log_every = 4, callbacks = { callbacks.Lines({ stream = stream }) } }):fit()
    stream:close()
    local text = require("spec.support.files").read(path)
    os.remove(path)
    assert.matches("^step 4  epoch 1  loader_share %S+  loss %S+  lr 0.1  samples_per_second %S+\n"
      .. "step 4  epoch 1  validation.loss %S+\n$", text)
  end)

  it("have names of their own, and their states are saved", function()
    local function counting()
      local c = { n = 0 }
      function c:on_step()
        self.n = self.n + 1
      end
      function c:state_dict()
        return { n = self.n }
      end
      function c:load_state_dict(state)
        self.n = state.n
      end
      return c
    end
    local named, other, third = counting(), counting(), counting()
    named.name, third.name = "count", "count"
    local trainer = make({ callbacks = { named, other, third } })
    trainer:fit()
    local objects = trainer:objects()
    assert.is_true(rawequal(named, objects.callback_count))
    assert.is_true(rawequal(other, objects.callback_callback2))
    assert.is_true(rawequal(third, objects.callback_count_2))
    local path = os.tmpname()
    os.remove(path)
    require("lupine.checkpoint").save(path, objects)
    named, other, third = counting(), counting(), counting()
    named.name, third.name = "count", "count"
    make({ callbacks = { named, other, third } }):resume(path)
    os.execute("rm -rf " .. path)
    assert.same({ 12, 12, 12 }, { named.n, other.n, third.n })
  end)
end)

describe("progress", function()
  it("is lines in a log, with rate and loss", function()
    local path = program.temporary([[
      local torch = require("torch")
      local nn = torch.nn
      local x, y = torch.randn({ 32, 2 }), torch.randint(0, 2, { 32 })
      local set = torch.utils.data.TensorDataset(x, y)
      local model = nn.Linear(2, 2)
      require("lupine").Trainer({ model = model, loss = nn.CrossEntropyLoss(), epochs = 2,
        optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }),
        train = torch.utils.data.DataLoader(set, { batch_size = 8 }) }):fit()
    ]])
    local out, err = program.run({ path })
    os.remove(path)
    assert.equal("", out)
    for epoch = 1, 2 do
      assert.matches(("epoch %d/2: 4/4 batches %%(100 %%%%%%), %%S+ batches/s, loss %%S+, "):format(
        epoch), err)
    end
  end)
end)
