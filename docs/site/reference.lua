--- Pages of modules: a list of names, then each name with its forms, text, parameters,
--- results and errors.
local html = require("html")
local text = require("text")

local escape = html.escape

local M = {}

local KINDS = { operator = "function", enumeration = "enumeration", option = "option",
  class = "class", ["function"] = "function", value = "value", property = "property",
  member = "member", module = "module" }

local function add(out, ...)
  out[#out + 1] = string.format(...)
end

-- ---- one entry -------------------------------------------------------------------

local function prose(out, parts, anchors)
  for _, p in ipairs(parts) do
    if p.kind == "code" then
      add(out, "<pre><code>%s</code></pre>", escape(p.text))
    else
      add(out, "<p>%s</p>", html.inline(p.text, anchors))
    end
  end
end

local function rows(out, title, list, cell)
  if #list > 0 then
    add(out, "<h4>%s</h4>\n<ul>", title)
    for _, item in ipairs(list) do
      add(out, "<li>%s</li>", cell(item))
    end
    out[#out + 1] = "</ul>"
  end
end

local function details(out, parts, anchors)
  rows(out, "Parameters", parts.params, function(p)
    return ("<code>%s</code>%s <code class=\"type\">%s</code> %s"):format(escape(p.name),
      p.optional and " (may be left out)" or "", escape(p.type), html.inline(p.text, anchors))
  end)
  rows(out, "Returns", parts.results, function(r)
    return ("<code class=\"type\">%s</code> %s"):format(escape(r.type),
      html.inline(r.text, anchors))
  end)
  rows(out, "Other forms", parts.overloads, function(o)
    return ("<code>%s</code>"):format(escape(o))
  end)
  rows(out, "Errors", parts.errors, function(e)
    return html.inline(e, anchors)
  end)
end

local function members(out, entry)
  out[#out + 1] = "<table><tr><th>member</th><th>value</th></tr>"
  for _, m in ipairs(entry.entries) do
    add(out, '<tr id="%s"><td><code>%s</code></td><td><code>%s</code></td></tr>', escape(m.name),
      escape(m.short), escape(m.shown))
  end
  out[#out + 1] = "</table>"
end

-- An option's help: what it is, then a line each of what it takes and does.
local function option(out, entry, anchors)
  local first, rest = entry.text:match("^([^\n]*)\n?(.*)$")
  add(out, "<p>%s</p>", html.inline(first, anchors))
  if rest ~= "" then
    out[#out + 1] = "<ul>"
    for line in rest:gmatch("[^\n]+") do
      add(out, "<li>%s</li>", html.inline(line, anchors))
    end
    out[#out + 1] = "</ul>"
  end
end

local function heading(out, entry, anchors, level)
  add(out, '<h%d>%s <span class="kind">%s</span></h%d>', level, escape(entry.name),
    KINDS[entry.kind], level)
  if entry.above then
    add(out, "<p>It has what %s has, and:</p>", html.inline("`" .. entry.above .. "`", anchors))
  end
  for _, form in ipairs(entry.forms) do
    add(out, '<pre class="form"><code>%s</code></pre>', escape(form))
  end
  if entry.shown then
    add(out, "<p><code>%s</code></p>", escape(entry.shown))
  end
end

local function section(out, entry, anchors, level)
  add(out, '<section id="%s">', escape(entry.name))
  heading(out, entry, anchors, level)
  if entry.kind == "option" then
    option(out, entry, anchors)
  else
    local parts = text.parse(entry.text)
    prose(out, parts.prose, anchors)
    details(out, parts, anchors)
  end
  if entry.kind == "enumeration" then
    members(out, entry)
  else
    for _, inner in ipairs(entry.entries or {}) do
      section(out, inner, anchors, 3)
    end
  end
  out[#out + 1] = "</section>"
end

-- ---- a page ----------------------------------------------------------------------

local function contents(out, module, anchors)
  out[#out + 1] = '<table class="names">'
  for _, entry in ipairs(module.entries) do
    add(out, '<tr><td><a href="#%s"><code>%s</code></a></td><td>%s</td></tr>', escape(entry.name),
      escape(entry.short), html.inline(text.summary(entry.text), anchors))
  end
  out[#out + 1] = "</table>"
end

--- The body of a module's page.
---@param module table
---@param anchors table<string, string>
---@return string
function M.body(module, anchors)
  local out = {}
  add(out, "<h1>%s</h1>", escape(module.name))
  prose(out, text.parse(module.intro).prose, anchors)
  if #module.entries > 0 then
    contents(out, module, anchors)
  end
  for _, entry in ipairs(module.entries) do
    section(out, entry, anchors, 2)
  end
  return table.concat(out, "\n")
end

return M
