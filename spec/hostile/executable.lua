--- Executable files: texts and tensors that do not fit one another, under a hash that
--- is right, and files whose hash is wrong.
local core = require("lupine.core")
local file = require("spec.hostile.file")
local files = require("spec.support.files")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local path = os.tmpname()
local load = file(poptorch.load)

-- A saved training model: its bytes, texts and tensors.
local Net = nn.Module:extend("HostileNet")

function Net:init()
  self.fc, self.loss = nn.Linear(2, 3), nn.MSELoss()
end

function Net:forward(x)
  local y = self.fc(x) + torch.tensor({ 1.0, 2.0, 3.0 })
  return y, self.loss(y, torch.zeros_like(y))
end

local net = Net()
local executor = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(),
  { lr = 0.1, momentum = 0.9 }))
executor(torch.ones({ 1, 2 }))
executor:save(path)
executor:destroy()
local BYTES = files.read(path)
local NAMES, TENSORS, TEXTS = core.read_executable(path)
TEXTS.format, TEXTS.version = nil, nil

-- The file with one text changed: by a pattern, or for another one; and with
-- tensors of these names exchanged.
local function with(name, from, to, exchanged)
  return function()
    local texts, tensors = {}, {}
    for key, text in pairs(TEXTS) do
      texts[key] = text
    end
    if name and to then
      local n
      texts[name], n = texts[name]:gsub(from, (to:gsub("%%", "%%%%")))
      assert(n > 0, name .. ": nothing to change")
    elseif name then
      texts[name] = from
    end
    for i, key in ipairs(NAMES) do
      tensors[i] = exchanged and exchanged[key] or TENSORS[i]
    end
    core.write_executable(path, NAMES, tensors, texts)
    return files.read(path)
  end
end

local function tensor(name, t)
  return with(nil, nil, nil, { [name] = t })
end

local constant
for _, name in ipairs(NAMES) do
  constant = name:find("^constant/") and name or constant
end

local function flipped(at)
  return function()
    local i = at < 0 and #BYTES + at or at
    return BYTES:sub(1, i - 1) .. string.char(BYTES:byte(i) ~ 16) .. BYTES:sub(i + 1)
  end
end

return {
  read = load,
  valid = {}, -- each cut of the container: spec/hostile/safetensors.lua
  taken = { BYTES },
  refused = {
    { "cut in its header", BYTES:sub(1, 200), "ValueError", "truncated" },
    { "cut in a text", BYTES:sub(1, #BYTES // 2), "ValueError", "truncated" },
    { "cut at its end", BYTES:sub(1, -2), "ValueError", "truncated" },
    { "a wrong hash", flipped(-3), "ValueError", "damaged: its contents have the hash" },
    { "another file", "return os.exit(1)", "ValueError", "no safetensors file" },
    -- the step against the tensors
    { "no step", with("step", ""), "ValueError", "step cannot be read" },
    { "a step of code", with("step", "os.exit(1)"), "ValueError", "step cannot be read" },
    { "other weights", tensor("model.fc.weight", torch.ones(3, 3)), "Error",
      "parameter 'fc.weight' is" },
    { "weights of another type", tensor("model.fc.weight", torch.ones(3, 2):double()), "Exception",
      "." },
    { "a constant of another shape", tensor(constant, torch.ones(4)), "ValueError",
      "constant .* is float32" },
    { "a constant of another type", tensor(constant, torch.ones(3, { dtype = torch.int32 })),
      "ValueError", "constant .* is float32" },
    { "a state of another shape", tensor("optimizer.0.0.momentum_buffer", torch.ones(2)),
      "Exception", "." },
    { "a parameter of another name", with("step", '"fc.weight"', '"fc.height"'), "Exception",
      "." },
    { "a state of another name", with("step", '"momentum_buffer___fc.bias"', '"b"'), "Exception",
      "." },
    { "a parameter of another shape", with("step", "float32%[3, 2%]", "float32[3, 4]"),
      "Exception", "." },
    { "sizes beyond all", with("step", "float32%[3, 2%]", "float32[3, 9223372036854775807]"),
      "Exception", "." },
    { "more replicas than any", with("step", "replicas 1", "replicas 9223372036854775807"),
      "Exception", "." },
    { "more rounds than any", with("step", "iterations 1", "iterations 9223372036854775807"),
      "Exception", "." },
    -- what a session was opened with
    { "no session", with("session", "[]"), "ValueError", "'session'" },
    { "an empty session", with("session", '{"map":[]}'), "ValueError", "'session'" },
    { "another session", with("session", '{"map":[["anchors",{"map":[]}]]}'), "ValueError", "." },
    { "outputs of no mode", with("session", '"mode","[%w_]+"', '"mode",false'), "ValueError",
      "'session' says nothing of modes" },
    { "outputs of no period", with("session", '"period",1', '"period",0'), "ValueError",
      "'session' says nothing of modes" },
    { "loops other than the options'", with("step", "replicas 1", "replicas 2"), "ValueError",
      "'step' and 'executor' differ" },
    { "no report", with("report", '{"map":[]}'), "ValueError", "'report' is damaged" },
    { "no cycles", with("report", '"cycles",%d+', '"cycels",1'), "ValueError",
      "'report' is damaged: " },
    { "cycles of a text", with("report", '%["cycles",%d+%],%["edges"',
      '["cycles","1"],["edges"'), "ValueError", "'report' is damaged: cycles: expected integer" },
    { "a deep text", with("report", ('{"list":['):rep(5000) .. ("]}"):rep(5000)), "ValueError",
      "." },
    -- the executor
    { "no executor", with("executor", "null"), "ValueError", "'executor'" },
    { "an empty executor", with("executor", '{"map":[["executor",{"map":[]}]]}'), "ValueError",
      "'executor' is damaged" },
    { "other loops", with("executor", '"replication_factor",1', '"replication_factor","a"'),
      "AssertionError", "replication_factor" },
    { "other notes", with("executor", '"casting",false', '"casting",3'), "ValueError",
      "'traced' is damaged" },
    { "notes of no attribute", with("executor", '"attributes",{"map":%[%]}',
      '"attributes",{"list":[1]}'), "ValueError", "'traced' is damaged" },
    { "an unknown mode", with("executor", '"OutputMode.Final"', '"OutputMode.Finally"'),
      "ValueError", "enumeration" },
    { "an unknown object", with("executor", "poptorch.PipelinedExecution", "io.popen"),
      "AttributeError", "there is no class" },
    { "no tensors of inputs", with("executor", '"kind","tensor"', '"kind","value"'), "ValueError",
      "structure" },
    { "inputs of no kind", with("executor", '"kind","tensor"', '"kind",3'), "ValueError",
      "structure" },
    -- the model
    { "a class that is not there", with("model", '"HostileNet"', '"NobodysNet"'), "AttributeError",
      "no class 'NobodysNet'" },
    { "an optimizer for a module", with("model", '"HostileNet"', '"torch.optim.SGD"'), "ValueError",
      "no class of modules" },
    { "a module for an optimizer", with("model", '"torch.optim.SGD"', '"torch.nn.Linear"'),
      "ValueError", "no class of optimizers" },
    { "a function for a class", with("model", '"HostileNet"', '"torch.load"'), "AttributeError",
      "no class" },
    { "a hook of the library", with("model", '"module":"HostileNet"',
      '"hooks":[["_hooks",{"map":[["fn",{"function":"torch.save"}]]}]],"module":"Nobody"'),
      "AttributeError", "no class" },
    { "a hook that is none", with("model", '"module":"HostileNet"',
      '"hooks":[["_modules",{"map":[]}]],"module":"HostileNet"'), "ValueError", "hooks hold" },
    { "a function of the machine", with("model", '"training",true',
      '"training",{"function":"os.exit"}'), "AttributeError", "no function 'os.exit'" },
    { "a module that is not there again", with("model", "^.*$", '{"map":[["model",{"again":7}]]}'),
      "ValueError", "not there again" },
    { "no model", with("model", '{"map":[["model",1]]}'), "ValueError", "no module" },
    { "a parameter of whole numbers",
      tensor("model.fc.bias", torch.ones(3, { dtype = torch.int64 })), "Exception", "." },
  },
}
