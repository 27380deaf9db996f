--- Runs the golden cases of an area each way and books what happens.
local areas = require("spec.golden.areas")
local read = require("spec.golden.read")
local ways = require("spec.golden.ways")

local M = {}

M.WAYS = { "eager", "compiled", "gradient", "second" }
local RUN = { compiled = ways.forward, gradient = ways.gradient, second = ways.second }

function M.manifest(directory)
  return read.json(read.file(directory .. "/manifest.json"))
end

local function count()
  return { passed = 0, total = 0, failed = 0, skipped = {}, refused = {}, beside = {},
    failures = {} }
end

local function add(counts, name)
  counts[name] = (counts[name] or 0) + 1
end

local function enter(n, run, case, load)
  local ok, e = pcall(run, case, load)
  local told = type(e) == "table" and e or {}
  if not ok and rawget(told, "beside") then
    add(n.beside, told.beside)
    return
  elseif not ok and rawget(told, "refused") then
    add(n.refused, told.refused)
    return
  end
  n.total = n.total + 1
  if ok then
    n.passed = n.passed + 1
  elseif rawget(told, "skipped") then
    add(n.skipped, told.skipped)
  else
    n.failed = n.failed + 1
    table.insert(n.failures, ("%s: %s"):format(case.id, (tostring(e):gsub("\n.*", ""))))
  end
end

--- The cases of the area, as manifest.json records it: for each way of
--- `wanted` {passed, total, failed, failures, skipped, refused, beside: name or
--- reason -> number}. skipped: what is called is not there; refused: by tracing,
--- by design; beside: the way does not apply to the case. Only functions and
--- modules run other ways than eagerly.
---@param directory string
---@param area string
---@param record {files: string[]}
---@param wanted table<string, integer> way -> n: every n-th case of the area runs this way
function M.area(directory, area, record, wanted)
  local run = { eager = areas[area] or areas.functions }
  for way, fn in pairs(areas[area] and area ~= "modules" and {} or RUN) do
    run[way] = fn
  end
  local books = {}
  for way in pairs(run) do
    books[way] = wanted[way] and count() or nil
  end
  local at = 0
  for _, file in ipairs(record.files) do
    local doc = read.json(read.file(("%s/%s.json"):format(directory, file)))
    local load = read.tensors(("%s/%s"):format(directory, doc.tensors))
    for _, case in ipairs(doc.cases) do
      for way, n in pairs(books) do
        if at % wanted[way] == 0 then
          enter(n, run[way], case, load)
        end
      end
      at = at + 1
    end
  end
  return books
end

return M
