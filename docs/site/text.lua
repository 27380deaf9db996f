--- Texts above definitions as parts: prose, parameters, results, errors, sources, from
--- the comments' own marks (LuaCATS, `error:`, `source:`).
local M = {}

-- The mark that begins a line, and what follows it.
local function marked(line)
  local tag, rest = line:match("^@(%a+)%s*(.*)$")
  if tag then
    return tag, rest
  end
  tag, rest = line:match("^(errors?):%s*(.*)$")
  if tag then
    return "error", rest
  end
  tag, rest = line:match("^(source):%s*(.*)$")
  return tag, rest
end

-- Lines as items {tag, text}: what follows a mark goes on until the next one.
local function items_of(text)
  local items, prose = {}, {}
  local last
  for line in (text .. "\n"):gmatch("(.-)\n") do
    local tag, rest = marked(line)
    if tag then
      last = { tag = tag, text = rest }
      items[#items + 1] = last
    elseif last and line:find("%S") then
      last.text = last.text .. " " .. line:match("^%s*(.*)$")
    elseif not last then
      prose[#prose + 1] = line
    end
  end
  return items, prose
end

-- The end of a type: it goes on behind a colon, a comma, a bar, or inside brackets.
local function split_type(text)
  local depth, i = 0, 1
  while i <= #text do
    local c = text:sub(i, i)
    if c:find("[%(%[{<]") then
      depth = depth + 1
    elseif c:find("[%)%]}>]") then
      depth = depth - 1
    elseif c == " " and depth == 0 and not text:sub(1, i - 1):find("[:,|]$") then
      break
    end
    i = i + 1
  end
  return text:sub(1, i - 1), text:sub(i):match("^%s*(.-)%s*$")
end

local function parameter(text)
  local name, optional, rest = text:match("^([%w_%.]+)(%??)%s*(.*)$")
  local kind, doc = split_type(rest or "")
  return { name = name or text, optional = optional == "?", type = kind, text = doc }
end

-- Paragraphs of prose; lines that stand further in are code.
local function paragraphs(prose)
  local list, open = {}, nil
  for _, line in ipairs(prose) do
    local kind = line:find("^   +%S") and "code" or "text"
    if not line:find("%S") then
      open = open and open.kind == "code" and open or nil
      if open then
        open.lines[#open.lines + 1] = ""
      end
    elseif open and (open.kind == kind or open.kind == "code" and line:find("^  ")) then
      open.lines[#open.lines + 1] = line
    else
      open = { kind = kind, lines = { line } }
      list[#list + 1] = open
    end
  end
  for _, p in ipairs(list) do
    p.text = table.concat(p.lines, "\n"):gsub("%s+$", "")
  end
  return list
end

--- A text as {prose, params, results, errors, sources, overloads}.
---@param text string?
---@return table
function M.parse(text)
  local items, prose = items_of(text or "")
  local out = { prose = paragraphs(prose), params = {}, results = {}, errors = {}, sources = {},
    overloads = {} }
  for _, item in ipairs(items) do
    if item.tag == "param" then
      table.insert(out.params, parameter(item.text))
    elseif item.tag == "return" then
      local kind, doc = split_type(item.text)
      table.insert(out.results, { type = kind, text = doc })
    elseif item.tag == "error" then
      table.insert(out.errors, item.text)
    elseif item.tag == "source" then
      table.insert(out.sources, item.text)
    elseif item.tag == "overload" then
      table.insert(out.overloads, item.text)
    end
  end
  return out
end

--- The first sentence, for lists.
---@param text string?
---@return string
function M.summary(text)
  local first = M.parse(text).prose[1]
  local line = first and first.kind == "text" and first.text:gsub("%s*\n%s*", " ") or ""
  return line:match("^(.-[%.:;])%s") or line
end

return M
