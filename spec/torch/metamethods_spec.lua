--- Whatever getmetatable gives may be called with anything: each function in it
--- returns or raises, whoever it is called with. In a process of its own, which
--- a crash would end.
local build = os.getenv("LUPINE_BUILD") or "build"

local PROGRAM = [=[
local core, torch = require("lupine.core"), require("torch")
local lupine, optim = require("lupine"), require("torch.optim")
local x = torch.ones(2, { requires_grad = true })
local y = x * 2
local parts = torch.unbind(torch.ones(3))
local objects = {
  x, torch.float32, torch.device("cpu"), torch.Size({ 1, 2 }), torch.slice(1, 2), torch.none,
  torch.ellipsis, torch.Generator(), core.trace(), y.grad_fn, x:register_hook(print),
torch.nn.Linear(1, 1), optim.SGD({ x }, { lr = 0.1 }),
  lupine.compile(function(a) return a * 2 end, { torch.ones(2) }), parts,
  torch.zeros(2).shape, torch.no_grad(),
}
local trace = core.trace()
objects[#objects + 1] = trace:declare("input", "input_1", nil, { 1 }, torch.float32)
local step = core.trace():step({})
objects[#objects + 1] = step
objects[#objects + 1] = core.graph_parse(step:text("micro"))
local complete = core.trace():step({})
complete:complete({})
objects[#objects + 1] = complete:compile({})
local wrong = { "x", 1, 2.5, true, {}, print, io.stdout, coroutine.create(print),
  setmetatable({}, { __index = function() return 1 end }), x, torch.none, step }
wrong[#wrong + 1] = torch.Size({ 1 })
wrong[#wrong][1] = {}

local skipped = { __gc = true, __close = true, free = true, close = true }
local called = 0
local function try(f, ...)
  called = called + 1
  pcall(f, ...)
end
local function each(t, seen)
  if type(t) ~= "table" or seen[t] then
    return
  end
  seen[t] = true
  for name, f in pairs(t) do
    if type(f) == "function" and (LAST or false) == (skipped[name] or false) then
      try(f)
      for _, v in ipairs(wrong) do
        try(f, v)
        try(f, v, "numel")
        try(f, v, -1)
        try(f, v, v, v)
        try(f, nil, v)
      end
    end
  end
  each(rawget(t, "__index"), seen)
end
for pass = 1, 2 do -- the second time with what closes
  LAST = pass == 2
  local seen = {}
  for _, o in ipairs(objects) do
    each(debug.getmetatable(o), seen)
  end
end
print("called " .. (called > 1000 and "many" or called))
]=]

describe("a function of a metatable", function()
  it("survives any self", function()
    local path = os.tmpname()
    local f = assert(io.open(path, "w"))
    f:write(PROGRAM)
    f:close()
    local out = assert(io.popen(("%s/lupine %s 2>&1 </dev/null"):format(build, path)))
    local text = out:read("a")
    local ok, how, code = out:close()
    os.remove(path)
    assert(ok, ("%s %s: %s"):format(how, code, text:sub(-2000)))
    assert.matches("called many", text)
  end)

  it("says what a Size holds, whatever that is", function()
    local torch = require("torch")
    local size = torch.Size({ 1, 2 })
    size[1] = true
    assert.equal("torch.Size([true, 2])", tostring(size))
    assert.is_false(pcall(getmetatable(size).__eq, size, "x"))
    assert.is_false(pcall(getmetatable(size).__index, "x", 1))
  end)
end)
