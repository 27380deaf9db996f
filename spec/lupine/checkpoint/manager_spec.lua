-- Managers: which checkpoints stay, which is the latest, the best, the one that is taken
-- when others are damaged.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local program = require("spec.support.program")

local raises = helper.raises
local root

before_each(function()
  root = program.shell("mktemp -d"):gsub("\n", "")
end)
after_each(function()
  program.shell("rm -rf " .. root)
end)

local function names(manager)
  local out = {}
  for i, entry in ipairs(manager:list()) do
    out[i] = entry.name:gsub("step%-0*", "")
  end
  return table.concat(out, " ")
end

-- Saves steps with these values of a metric.
local function saved(manager, values, metric)
  for step, value in ipairs(values) do
    manager:save(step, { step = step }, metric and { [metric] = value })
  end
  return manager
end

describe("a Manager", function()
  it("keeps all without a rule", function()
    local manager = saved(checkpoint.Manager(root), { 1, 1, 1, 1 })
    assert.equal("4 3 2 1", names(manager))
    assert.equal(root .. "/step-00000004", (manager:latest()))
  end)

  it("keeps the last ones", function()
    assert.equal("5 4", names(saved(checkpoint.Manager(root, { keep = 2 }), { 1, 1, 1, 1, 1 })))
    assert.equal("step-00000004\nstep-00000005\n", program.shell("ls -A " .. root))
  end)

  it("keeps the best ones beside the last", function()
    for _, case in ipairs({ { "min", "6 5 2", 2 }, { "max", "6 5 3", 3 } }) do
      program.shell(("rm -rf %s"):format(root))
      local manager = saved(checkpoint.Manager(root .. "/", { keep = 2,
        best = { metric = "loss", mode = case[1] } }), { 5, 1, 9, 4, 3, 1 }, "loss")
      assert.equal(case[2], names(manager))
      local path, entry = manager:best()
      assert.equal(("%s/step-%08d"):format(root, case[3]), path)
      assert.equal(case[3], entry.step)
      assert.is_true(entry.time > 1e9)
    end
    local two = saved(checkpoint.Manager(root .. "/two", { keep = 1, best = { metric = "acc",
      mode = "max", keep = 2 } }), { 0.1, 0.9, 0.5, 0.7, 0 / 0 }, "acc")
    assert.equal("5 4 2", names(two))
  end)

  it("has nothing before the first one", function()
    local manager = checkpoint.Manager(root .. "/none", { best = { metric = "x" } })
    assert.is_nil((manager:latest()))
    assert.is_nil((manager:best()))
    assert.is_nil((manager:restore_latest({})))
    assert.same({}, manager:list())
    assert.is_false(core.is_folder(root .. "/none"))
  end)

  it("never overwrites: a step that is there gets a number, and is the later one", function()
    local manager = checkpoint.Manager(root)
    manager:save(3, { x = "first" })
    assert.equal(root .. "/step-00000003-2", manager:save(3, { x = "second" }))
    for k = 3, 11 do
      manager:save(3, { x = k })
    end
    assert.equal(11, manager:restore_latest({}).x)
    assert.equal("first", checkpoint.load(root .. "/step-00000003").x)
  end)

  it("has the one last that was saved last, after going back too", function()
    local manager = saved(checkpoint.Manager(root, { keep = 2 }), { 1, 1, 1, 1, 1 })
    checkpoint.restore(root .. "/step-00000004", {})
    manager:save(3, { x = "again" })
    assert.equal("3 5", names(manager))
    assert.equal("again", manager:restore_latest({}).x)
    manager:save(100000000, { x = 1 })
    manager:save(99999999, { x = 2 })
    assert.equal("99999999 100000000", names(manager))
  end)

  it("leaves alone what is not its own", function()
    program.shell(("cd %s && mkdir step-x mine step-00000001-x && touch step-00000009")
      :format(root))
    saved(checkpoint.Manager(root, { keep = 1 }), { 1, 1 })
    assert.equal("mine\nstep-00000001-x\nstep-00000002\nstep-00000009\nstep-x\n",
      program.shell("ls -A " .. root))
  end)

  local function warned(fn)
    local path = root .. ".log"
    local level = core.host.log_level()
    core.host.log_level("warn")
    core.host.log_copy(path)
    fn()
    core.host.log_level(level)
    core.host.log_copy()
    local text = files.read(path)
    os.remove(path)
    return text
  end

  it("takes the one before a damaged one, aloud", function()
    local manager = saved(checkpoint.Manager(root, { keep = 3 }), { 1, 1, 1, 1 })
    program.shell(("echo x >> %s/step-00000004/state.json"):format(root))
    program.shell(("rm %s/step-00000003/manifest.json"):format(root))
    local values, entry
    local text = warned(function()
      values, entry = manager:restore_latest({})
    end)
    assert.equal(2, values.step)
    assert.equal(root .. "/step-00000002", entry.path)
    assert.matches("step%-00000004' cannot be used: the file state.json has %d+ bytes.*"
      .. "the one before is taken", text)
    assert.matches("step%-00000003' cannot be used: the file manifest.json is missing", text)
    program.shell(("echo x >> %s/step-00000002/state.json"):format(root))
    raises("ValueError", "none of the 3 checkpoints", function()
      manager:restore_latest({})
    end)
  end)

  it("says what does not fit, rather than take another one", function()
    local nn = require("torch.nn")
    local manager = checkpoint.Manager(root)
    manager:save(1, { model = nn.Linear(1, 1) })
    manager:save(2, { model = nn.Linear(2, 2) })
    raises("RuntimeError", "step%-00000002.*size mismatch", function()
      manager:restore_latest({ model = nn.Linear(1, 1) })
    end)
    raises("KeyError", "optimizer", function()
      manager:restore_latest({ model = nn.Linear(2, 2), optimizer = require("torch.optim").SGD(
        nn.Linear(2, 2):parameters(), 0.1) })
    end)
  end)

  it("refuses options and arguments that mean nothing", function()
    for _, bad in ipairs({ { keep = 0 }, { keep = 1.5 }, { keeep = 1 }, { best = 1 }, { best = {} },
      { best = { metric = "x", mode = "low" } }, { best = { metric = "x", keep = 0 } },
      { best = { metrics = "x" } } }) do
      assert.has_error(function()
        checkpoint.Manager(root, bad)
      end)
    end
    assert.has_error(function()
      checkpoint.Manager(1)
    end)
    local manager = checkpoint.Manager(root, { best = { metric = "loss" } })
    raises("ValueError", "'loss'.*'los'", function()
      manager:save(1, { x = 1 }, { los = 1 })
    end)
    raises("TypeError", "loss: expected a number", function()
      manager:save(1, { x = 1 }, { loss = "1" })
    end)
    for _, step in ipairs({ -1, 1.5, "1" }) do
      assert.has_error(function()
        manager:save(step, { x = 1 }, { loss = 1 })
      end)
    end
    raises("ValueError", "without best", function()
      checkpoint.Manager(root):best()
    end)
    assert.equal("", program.shell("ls -A " .. root))
  end)
end)
