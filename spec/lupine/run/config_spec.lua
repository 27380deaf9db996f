-- Run files: what stands where, what wins, what a text is, and what is refused with
-- file and line.
local config = require("lupine.run.config")
local files = require("spec.support.files")
local helper = require("spec.helper")

local BASE = [[
model: {class: torch.nn.Linear, args: {in_features: 3, out_features: 2}}
data:
  train: {class: TensorDataset, args: []}
optimizer: {class: SGD, args: {lr: 0.1, momentum: 0.9}}
]]

describe("a run file", function()
  local folder

  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    require("lupine.core").make_folder(folder)
  end)
  teardown(function()
    os.execute(("rm -r '%s'"):format(folder))
  end)

  local function write(name, text)
    local path = folder .. "/" .. name
    files.write(path, text)
    return path
  end

  local function read(text, words, name)
    return config.read(write(name or "run.yaml", text), words)
  end

  local function refuses(text, pattern, words, name)
    return helper.refuses("ConfigFileError", pattern, read, text, words, name)
  end

  it("has its own values, those of what it includes, and the defaults", function()
    write("base.yaml", BASE)
    local c = read("include: base.yaml\noptimizer: {args: {lr: 1e-4}}\ndata: {batch_size: 1e2}\n")
    assert.are.same({ lr = 1e-4, momentum = 0.9 }, c:get("optimizer").args)
    assert.equal("SGD", c:get("optimizer").class)
    assert.equal(100, c:get("data.batch_size"))
    assert.is_true(c:get("data.shuffle"))
    assert.equal(folder .. "/run.yaml:3", c:origin("data.batch_size"))
    assert.equal(folder .. "/base.yaml:3", c:origin("data.train"))
    assert.equal("default", c:origin("data.shuffle"))
    assert.equal("run", c:get("name"))
  end)

  it("yields to the command line", function()
    local c = read(BASE, { "optimizer.args.lr=0.5", "epochs=3", "metrics=[accuracy, top5]",
      "name=1E234", "seed=" })
    assert.are.same({ lr = 0.5, momentum = 0.9 }, c:get("optimizer").args)
    assert.equal(3, c:get("epochs"))
    assert.are.same({ "accuracy", "top5" }, c:get("metrics"))
    assert.equal("1E234", c:get("name"))
    assert.is_nil(c:get("seed"))
    assert.equal("command line", c:origin("epochs"))
  end)

  it("has its defaults in a group with nothing below it", function()
    for _, nothing in ipairs({ "", "~", "{}" }) do
      local c = read(BASE .. "logging: " .. nothing .. "\nearly_stopping:\n")
      assert.equal(50, c:get("logging.every"))
      assert.equal("min", c:get("early_stopping.mode"))
    end
  end)

  it("has its defaults where a program gives an empty table", function()
    local c = read('return { model = "a.b", data = { train = "c" }, logging = {}, '
      .. 'early_stopping = {} }', nil, "run.lua")
    assert.equal(50, c:get("logging.every"))
    refuses('return { model = "a.b", data = { train = "c" }, logging = { 3 } }',
      "logging: expected a mapping of every", nil, "run.lua")
  end)

  it("has its default in a key with nothing behind it", function()
    local c = read(BASE .. "callbacks:\n", { "data.shuffle=", "optimizer=", "accumulation=",
      "checkpoint.keep=", "data.batch_size=", "steps=" })
    assert.equal("Adam", c:get("optimizer").class)
    assert.are.same({}, c:get("callbacks"))
    assert.are.same({ 1, 2, 32 },
      { c:get("accumulation"), c:get("checkpoint.keep"), c:get("data.batch_size") })
    assert.is_true(c:get("data.shuffle"))
    assert.equal("default", c:origin("optimizer"))
    assert.is_nil(c:get("steps"))
  end)

  it("is a run file again, with or without validation", function()
    local first = read(BASE)
    assert.is_nil(first:get("data.validation"))
    assert.equal(first:yaml(false), read(first:yaml(true)):yaml(false))
    helper.raises("ConfigFileError", "validate_every: there is no data.validation", function()
      read(BASE, { "validate_every=2 epochs" })
    end)
  end)

  it("takes no arguments of another class along", function()
    local c = read(BASE, { "optimizer.class=Adam" })
    assert.are.same({}, c:get("optimizer").args)
    assert.equal("Adam", read(BASE, { "optimizer=Adam" }):get("optimizer").class)
  end)

  it("types values by the schema, and free arguments by YAML 1.2", function()
    local c = read(BASE .. "folder: 1E234\nname: no\nclip_grad_norm: 1\n" ..
      "callbacks: {class: a.b, args: {a: 010, b: no, c: 12:30, d: '1', e: 0x10, f: 1_0,"
      .. " g: .5, h: -1e3, i: true, j: ~, k: 1e, l: .inf}}\n")
    assert.equal("1E234", c:get("folder"))
    assert.equal("no", c:get("name"))
    assert.equal("float", math.type(c:get("clip_grad_norm")))
    assert.are.same({ a = 10, b = "no", c = "12:30", d = "1", e = 16, f = "1_0", g = 0.5,
      h = -1000.0, i = true, k = "1e", l = math.huge }, c:get("callbacks")[1].args)
    assert.equal("integer", math.type(c:get("callbacks")[1].args.a))
    assert.is_false(read(BASE .. "weights_strict: no\n"):get("weights_strict"))
  end)

  it("reads truth values in all their spellings, and quotes what others read as one", function()
    for value, words in pairs({ [true] = "true True TRUE yes Yes YES on On ON",
      [false] = "false False FALSE no No NO off Off OFF" }) do
      for word in words:gmatch("%a+") do
        assert.equal(value, read(BASE .. "weights_strict: " .. word .. "\n"):get("weights_strict"))
      end
    end
    for _, word in ipairs({ "yes", "no", "on", "Off" }) do
      assert.matches('^name: "' .. word .. '"\n', read(BASE .. "name: " .. word .. "\n"):yaml())
    end
    refuses(BASE .. "weights_strict: y\n", "weights_strict: expected")
  end)

  it("refers to its own values and to the environment", function()
    local c = read(BASE .. "name: run-${data.batch_size}-${env:LUPINE_NOT_THERE,x}\n" ..
      "epochs: ${seed}\nseed: 7\nfolder: $${HOME}\n")
    assert.equal(7, c:get("epochs"))
    assert.equal("${HOME}", c:get("folder"))
    assert.equal("run-64-x",
      read(BASE .. "name: run-${data.batch_size}-${env:LUPINE_NOT_THERE,x}\n",
      { "data.batch_size=64" }):get("name"))
    refuses(BASE .. "name: ${nam}\n", "run.yaml:5: %${nam}: the configuration has no value 'nam'")
    refuses(BASE .. "name: ${folder}\nfolder: ${name}\n", "refers to itself")
    refuses(BASE .. "name: ${env:LUPINE_NOT_THERE}\n", "no variable LUPINE_NOT_THERE")
    refuses(BASE .. "name: a${model}\n", "run.yaml:5: %${model} is a map")
  end)

  it("keeps secrets of the environment out of what it prints", function()
    local getenv = os.getenv
    local _ <close> = setmetatable({}, { __close = function()
      rawset(os, "getenv", getenv)
    end })
    rawset(os, "getenv", function(name)
      return ({ LUPINE_TOKEN = "tok-1", LUPINE_API_KEY = "k-2" })[name]
    end)
    local text = BASE .. "name: ${env:LUPINE_TOKEN}\n"
      .. "weights: \"a-${env:LUPINE_API_KEY}-${name}-${env:LUPINE_DIR,d}.bin\"\n"
      .. "folder: ${weights}\nscheduler: {class: X, args: {x: '${name}', y: '${env:KEYS,open}'}}\n"
      .. "epochs: ${env:NUMBER_KEY,3}\n"
    local first = read(text)
    local out = first:yaml(true)
    assert.is_nil(out:find("tok-1", 1, true) or out:find("k-2", 1, true))
    for _, line in ipairs({ [[name: "${env:LUPINE_TOKEN}" ]],
      [[weights: "a-${env:LUPINE_API_KEY}-${name}-${env:LUPINE_DIR,d}.bin" ]],
      [[x: "${env:LUPINE_TOKEN}" ]], [[y: open ]], [[epochs: "${env:NUMBER_KEY,3}" ]] }) do
      assert.matches(line, out, 1, true)
    end
    files.write(folder .. "/again.yaml", out)
    local again = config.reread(folder .. "/again.yaml")
    for _, key in ipairs({ "name", "weights", "folder", "scheduler", "epochs" }) do
      assert.same(first:get(key), again:get(key))
    end
    assert.equal("a-k-2-tok-1-d.bin", again:get("folder"))
    assert.equal(out, again:yaml(true))
  end)

  it("may be JSON or a program", function()
    local json = '{"model": "a.b", "data": {"train": {"class": "c", '
      .. '"args": {"s": "\\ud83d\\ude80"}}},\n'
      .. '"epochs": 2}'
    local c = read(json, nil, "run.json")
    assert.equal("🚀", c:get("data.train").args.s)
    assert.equal(folder .. "/run.json:2", c:origin("epochs"))
    c = read('return {model = "a.b", metrics = {"top5"}, '
      .. 'data = {train = "c", batch_size = 4}}', nil,
      "run.lua")
    assert.equal(4, c:get("data.batch_size"))
    assert.equal(folder .. "/run.lua", c:origin("data.batch_size"))
    refuses('{"model": "a.b", "model": "b"}', "duplicate", nil, "run.json")
    refuses("return 1", "has to return the table of keys", nil, "run.lua")
    refuses("return {model = {class = 'a.b', args = {f = print}}}",
      "run.lua: the program returned a function among the values", nil, "run.lua")
    refuses("return {a = {b = 1, [2] = 3}}", "key 2 among names", nil, "run.lua")
    refuses("", "a run file ends in .yaml, .yml, .json or .lua", nil, "x.txt")
  end)

  it("is refused with file, line, the nearest name and what is allowed", function()
    refuses(BASE .. "opimizer: SGD\n",
      "run.yaml:5: unknown key 'opimizer' %(nearest: 'optimizer'%)")
    refuses("data: {batchsize: 3}\n",
      "run.yaml:1: unknown key 'data.batchsize' %(nearest: 'batch_size'%)")
    refuses(BASE .. "batch_size: 3\n", "unknown key 'batch_size' %(there is 'data.batch_size'%)")
    refuses(BASE .. "scheduler: {class: StepLR, args: {gamma: 0.1}}\ngamma: 3\n",
      "unknown key 'gamma' %(there is 'scheduler.args.gamma'%)")
    refuses(BASE .. "mode: poptorch\naccumulation: 2\n",
      "run.yaml:6: accumulation: with mode poptorch this is options.Training.gradientAccum")
    refuses(BASE .. "mode: poptorch\nclip_grad_value: 2\n", "run.yaml:6: clip_grad_value: needs")
    refuses(BASE .. "epochs: 1.5\n", "run.yaml:5: epochs: expected an int >= 0, got '1.5'")
    refuses(BASE .. "epochs: '3'\n", "expected an int >= 0, got '3'")
    refuses(BASE .. "mode: eagr\n", "one of compiled, eager, poptorch %(nearest: 'eager'%), "
      .. "got 'eagr'")
    refuses(BASE .. "ema_decay: 1\n", "a number > 0 and < 1, got '1'")
    refuses(BASE .. "validate_every: 1 day\n", "'500 steps' or '1 epoch', got '1 day'")
    refuses(BASE .. "scheduler: {clas: StepLR}\n", "unknown key 'clas'; allowed are class, args")
    refuses(BASE .. "epochs: 1\nsteps: 2\n",
      "run.yaml:6: steps: epochs is given, too %(.*run.yaml:5%)")
    refuses(BASE .. "options: {deviceIterations: 2}\n", "acts with mode poptorch only")
    refuses("model: a.b\n", "'data.train' is missing")
    refuses(BASE, "expected key=value", { "epochs" })
    refuses(BASE, "command line: seed=%[1: did not find expected", { "seed=[1" })
    refuses("include: run.yaml\n", "includes itself")
    helper.raises("FileNotFoundError", "run.yaml:1: include: cannot read '.*nope.yaml'", function()
      read("include: nope.yaml\n")
    end)
  end)

  it("is no way to run or exhaust anything", function()
    refuses("a: !!python/object:os.system x\n", "the tag '.*' is not read")
    refuses("a: &x [*x]\n", "alias %*x is used before the end")
    refuses("a: 1\n---\nb: 2\n", "a second document")
    refuses("a: 1\na: 2\n", "run.yaml:2: 'a' stands here a second time; it is first at .*:1")
    refuses(("["):rep(70) .. ("]"):rep(70), "at most 64 are read")
    local bomb = { "callbacks: {class: a.b, args: {x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]" }
    for i = 1, 8 do
      bomb[#bomb + 1] = (", x%d: &x%d [%s]"):format(i, i, ("*x%d,"):format(i - 1):rep(10))
    end
    refuses(BASE .. table.concat(bomb) .. "}}\n", "at most 100000 values are read")
    refuses("a: \xff\n", "UTF%-8")
  end)

  it("prints itself in a form that says the same", function()
    local text = BASE .. [[
name: "a: b #c"
callbacks: [{class: x.y, args: {s: "true", t: 'multi

  line', u: "${env:NOT_THERE,q}", v: [1, {a: 2.0}], w: "$${z}"}}]
early_stopping: {metric: validation.loss, min_delta: 1e-9}
data: {validation: "d"}
mode: poptorch
options: {deviceIterations: 4, outputMode: All, Training: {gradientAccumulation: 8}}
]]
    text = text:gsub("data:\n  train: (.-)\n", "", 1):gsub("data: {validation",
      "data: {train: {class: TensorDataset, args: []}, validation")
    local first = read(text)
    local second = read(first:yaml(), nil, "again.yaml")
    assert.equal(first:yaml(), second:yaml())
    assert.are.same(first:get("callbacks")[1].args, second:get("callbacks")[1].args)
    assert.equal(first:get("name"), second:get("name"))
    assert.is_truthy(first:yaml(true):find("min_delta: 1e%-09 +# .*run.yaml:7"))
    assert.is_truthy(first:yaml(true):find("seed: null +# not set"))
  end)

  it("may be a table", function()
    local c = config.of_table({ model = "a.b", data = { train = "c" }, epochs = 2 })
    assert.equal(2, c:get("epochs"))
    helper.refuses("ConfigFileError", "epochs: expected an int", config.of_table,
      { model = "a.b", data = { train = "c" }, epochs = "two" })
    helper.refuses("KeyError", "no key 'epoch' %(nearest: 'epochs'%)", c.get, c, "epoch")
  end)
end)
