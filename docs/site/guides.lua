--- Pages of guides: Markdown by cmark-gfm, with links to other pages of the site.
local html = require("html")

local M = {}

--- {file, page, title} in order.
M.list = {
  { "README.md", "guide-overview", "Overview" },
  { "docs/first_steps.md", "guide-first-steps", "First steps" },
  { "docs/examples.md", "guide-starting", "Examples to start from" },
  { "docs/porting.md", "guide-porting", "Porting from Python" },
  { "docs/pipelines.md", "guide-pipelines", "Pipelines and memory" },
  { "docs/reports.md", "guide-reports", "Reports" },
  { "docs/runs.md", "guide-runs", "Runs" },
  { "docs/sweeps.md", "guide-sweeps", "Sweeps" },
  { "docs/speed.md", "guide-speed", "Speed" },
  { "docs/precision.md", "guide-precision", "Precision" },
  { "docs/profile.md", "guide-profile", "Profiles" },
  { "docs/simulation.md", "guide-simulation", "The simulated IPUs" },
  { "docs/popart.md", "guide-popart", "PopART and ONNX" },
  { "docs/custom_ops.md", "guide-custom-ops", "Custom operators in C" },
  { "docs/extending.md", "guide-extending", "Extending" },
  { "docs/architecture.md", "guide-architecture", "Architecture" },
  { "examples/README.md", "guide-examples", "Examples" },
  { "CHANGELOG.md", "guide-changes", "Changes" },
}

local function page_of(file)
  for _, guide in ipairs(M.list) do
    if guide[1] == file then
      return guide[2]
    end
  end
end

-- "docs/a.md" and "../README.md" -> "README.md"
local function joined(from, target)
  local parts = {}
  for part in ((from:match("^(.*/)") or "") .. target):gmatch("[^/]+") do
    if part == ".." then
      parts[#parts] = nil
    elseif part ~= "." then
      parts[#parts + 1] = part
    end
  end
  return table.concat(parts, "/")
end

--- The anchor of a heading, as hosts of repositories make it.
---@param title string HTML
---@return string
function M.slug(title)
  return (title:gsub("<[^>]*>", ""):gsub("&%w+;", ""):lower():gsub("[^%w%- _\128-\255]", "")
    :gsub("%s", "-"))
end

-- Links to other guides; to files that have no page, their name alone. Pictures, all of
-- docs/pictures, stand in the site's folder of that name.
local function links(body, file)
  body = body:gsub('<img src="([^"]*)"', function(target)
    return ('<img src="%s"'):format((joined(file, target):gsub("^docs/", "")))
  end)
  return (body:gsub('<a href="([^"]*)">(.-)</a>', function(target, label)
    if target:find("^https?:") or target:find("^#") then
      return nil
    end
    local path, anchor = target:match("^([^#]*)(.*)$")
    local page = page_of(joined(file, path))
    return page and ('<a href="%s%s">%s</a>'):format(html.file(page), anchor, label) or label
  end))
end

-- Anchors of headings, and the list of them: {level, slug, title}.
local function headings(body)
  local list, seen = {}, {}
  body = body:gsub("<h(%d)>(.-)</h%d>", function(level, title)
    local slug = M.slug(title)
    seen[slug] = (seen[slug] or -1) + 1
    slug = seen[slug] > 0 and slug .. "-" .. seen[slug] or slug
    list[#list + 1] = { level = tonumber(level), slug = slug, title = title:gsub("<[^>]*>", "") }
    return ('<h%s id="%s">%s</h%s>'):format(level, slug, title, level)
  end)
  return body, list
end

--- A guide's body and headings.
---@param file string
---@param anchors table<string, string>
---@return string body
---@return table[] headings
function M.body(file, anchors)
  local pipe = assert(io.popen("cmark-gfm -e table " .. file))
  local body = pipe:read("a")
  assert(pipe:close(), "cmark-gfm failed: " .. file)
  local list
  body, list = headings(links(body, file))
  return html.link_codes(body, anchors), list
end

--- Whether a file of the list is there.
---@param file string
---@return boolean
function M.exists(file)
  local f = io.open(file)
  return f ~= nil and f:close()
end

return M
