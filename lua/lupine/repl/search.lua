--- What ??TEXT prints: public names that have the text, and descriptions that
--- do, out of the forms of operators and the blocks of the Lua files.
local complete = require("lupine.complete")
local core = require("lupine.core")
local places = require("lupine.repl.places")
local signatures = require("lupine.base.signatures")

local MOST = 40 -- of each kind

local own = debug.getinfo(1, "S").source:match("^@(.*)lupine[/\\]repl[/\\]search%.lua$")

-- The text's place in another, whatever the case.
local function has(text, part)
  return type(text) == "string" and text:lower():find(part, 1, true) ~= nil
end

local function names(part)
  local found, seen = {}, {}
  local function look(value, label)
    for _, name in ipairs(complete.fields(value)) do
      if has(name, part) and not seen[label .. name] then
        seen[label .. name] = true
        found[#found + 1] = label .. name
      end
    end
  end
  for _, place in ipairs(places) do
    look(complete.resolve(place, {}, true), place .. ".")
  end
  look(core.methods, "Tensor:")
  return found
end

-- The line of a text that has the part, shortened.
local function line_with(text, part)
  for line in text:gmatch("[^\n]+") do
    if has(line, part) then
      line = line:match("^%s*(.-)%s*$")
      return #line > 90 and line:sub(1, 87) .. "..." or line
    end
  end
end

local function of_signatures(part, found)
  local lists = { ["Tensor:"] = signatures.methods, ["torch."] = signatures.functions }
  for label, list in pairs(lists) do
    for _, form in ipairs(list) do
      if has(form.doc, part) then
        found[#found + 1] = label .. form.name .. ": " .. line_with(form.doc, part)
      end
    end
  end
end

-- The name that a line of a Lua file declares.
local function declared(line)
  return line:match("^function%s+[%w_]+[%.:]([%a][%w_%.:]*)")
    or line:match("^local function (%a[%w_]*)")
    or line:match('"([%a][%w_]*)"%s*[,)]') or line:match("^M%.([%a][%w_]*)%s*=")
end

local function of_file(path, part, found)
  local block = {}
  local module = path:sub(#own + 1):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
  for line in io.lines(path) do
    local text = line:match("^%s*%-%-%-%s?(.*)$")
    if text then
      block[#block + 1] = (text:find("^@") or text:find("^[sS]ource:")
        or text:find("^error:")) and "" or text
    elseif #block > 0 then
      local hit, name = line_with(table.concat(block, "\n"), part), declared(line)
      if hit then
        found[#found + 1] = module .. (name and "." .. name or "") .. ": " .. hit
      end
      block = {}
    end
  end
end

-- Calls f with each Lua file of ours.
local function each_file(files, folder, f)
  for _, path in ipairs(files(folder .. "*")) do
    if path:find("/$") then
      each_file(files, path, f)
    elseif path:find("%.lua$") then
      f(path)
    end
  end
end

local function add(lines, title, list)
  if #list > 0 then
    lines[#lines + 1] = title
    for i = 1, math.min(#list, MOST) do
      lines[#lines + 1] = "  " .. list[i]
    end
    if #list > MOST then
      lines[#lines + 1] = ("  ... (%d more)"):format(#list - MOST)
    end
  end
end

--- The text of `??TEXT`.
---@param text string
---@param files fun(pattern: string): string[]
---@return string
return function(text, files)
  local part, texts = text:lower(), {}
  local named = names(part)
  of_signatures(part, texts)
  if own then
    each_file(files, own, function(path)
      of_file(path, part, texts)
    end)
  end
  table.sort(named)
  table.sort(texts)
  local lines = {}
  add(lines, "names with '" .. text .. "':", named)
  add(lines, "descriptions with '" .. text .. "':", texts)
  if #lines == 0 then
    return "nothing has '" .. text .. "'"
  end
  return table.concat(lines, "\n")
end
