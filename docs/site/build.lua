--- The manual: one page a module and one a guide, that a browser reads from a folder,
--- without a network.
---
---     build/lupine docs/site/build.lua build/docs
---
--- What modules have comes from the loaded modules (surface.lua), in the words of
--- ?NAME; guides from docs/*.md (guides.lua, by cmark-gfm).
package.path = "docs/site/?.lua;" .. package.path

local command_line = require("command_line")
local core = require("lupine.core")
local guides = require("guides")
local html = require("html")
local reference = require("reference")
local surface = require("surface")
local text = require("text")

local folder = arg[1] or "build/docs"

local function write(name, content)
  local file = assert(io.open(folder .. "/" .. name, "w"))
  assert(file:write(content))
  assert(file:close())
end

local function copy(name)
  local file <close> = assert(io.open("docs/site/" .. name))
  write(name, file:read("a"))
end

-- The pictures of the guides, which name them as docs/*.md do.
local function copy_pictures()
  assert(os.execute(("mkdir -p '%s/pictures' && cp docs/pictures/* '%s/pictures'"):format(folder,
    folder)))
end

-- Name -> address, of everything on the site's pages of modules.
local function anchors_of(modules)
  local anchors = {}
  for _, module in ipairs(modules) do
    anchors[module.name] = html.file(module.name)
  end
  surface.each(modules, function(entry, module)
    anchors[entry.name] = anchors[entry.name] or html.file(module.name) .. "#" .. entry.name
  end)
  return anchors
end

local function navigation(modules)
  local out = { "<h2>Guides</h2>\n<ul>" }
  for _, guide in ipairs(guides.list) do
    out[#out + 1] = ('<li><a href="%s">%s</a></li>'):format(html.file(guide[2]), guide[3])
  end
  out[#out + 1] = ('<li><a href="%s">%s</a></li>'):format(html.file(command_line.page),
    command_line.title)
  out[#out + 1] = "</ul>\n<h2>Modules</h2>\n<ul>"
  for _, module in ipairs(modules) do
    out[#out + 1] = ('<li><a href="%s">%s</a></li>'):format(html.file(module.name), module.name)
  end
  out[#out + 1] = "</ul>\n"
  return table.concat(out, "\n")
end

-- ---- the index that search.js reads ------------------------------------------------

local function row(name, address, summary)
  return core.json_encode(setmetatable({ name, address, summary }, core.json_array))
end

local function index(modules, headings)
  local rows = {}
  for _, h in ipairs(headings) do
    rows[#rows + 1] = row(h.title, h.address, h.guide)
  end
  for _, module in ipairs(modules) do
    rows[#rows + 1] = row(module.name, html.file(module.name), text.summary(module.intro))
  end
  surface.each(modules, function(entry, module)
    rows[#rows + 1] = row(entry.name, html.file(module.name) .. "#" .. entry.name,
      text.summary(entry.text))
  end)
  return "var INDEX = [\n" .. table.concat(rows, ",\n") .. "\n];\n"
end

-- ---- pages -------------------------------------------------------------------------

local function front(modules, names)
  local out = { "<h1>lupine</h1>", ("<p>The manual of lupine %s: %d names of %d modules, and the "
    .. "guides. Search finds both, here and without a network.</p>"):format(core.version, names,
    #modules), '<table class="names">' }
  for _, guide in ipairs(guides.list) do
    out[#out + 1] = ('<tr><td><a href="%s">%s</a></td><td>guide</td></tr>'):format(
      html.file(guide[2]), guide[3])
  end
  for _, module in ipairs(modules) do
    out[#out + 1] = ('<tr><td><a href="%s"><code>%s</code></a></td><td>%s</td></tr>'):format(
      html.file(module.name), module.name, html.inline(text.summary(module.intro), {}))
  end
  out[#out + 1] = "</table>"
  return table.concat(out, "\n")
end

local function write_guides(anchors, nav)
  local all = {}
  local function add(page, title, body, headings)
    for _, h in ipairs(headings) do
      h.address, h.guide = html.file(page) .. "#" .. h.slug, title
      all[#all + 1] = h
    end
    write(html.file(page), html.page(title, core.version, nav, body))
  end
  for _, guide in ipairs(guides.list) do
    add(guide[2], guide[3], guides.body(guide[1], anchors))
  end
  add(command_line.page, command_line.title, command_line.body(arg[-1]))
  return all
end

local function build()
  local modules = surface.gather()
  local anchors, nav = anchors_of(modules), navigation(modules)
  local names, without = 0, 0
  surface.each(modules, function(entry)
    names = names + 1
    without = without + (surface.lacks_text(entry) and 1 or 0)
  end)
  for _, module in ipairs(modules) do
    write(html.file(module.name), html.page(module.name, core.version, nav,
      reference.body(module, anchors)))
  end
  local headings = write_guides(anchors, nav)
  write("index.html", html.page("lupine", core.version, nav, front(modules, names)))
  write("index.js", index(modules, headings))
  copy("style.css")
  copy("search.js")
  copy_pictures()
  print(("docs: %d names, %d without a text, %d pages in %s"):format(names, without,
    #modules + #guides.list + 2, folder))
end

build()
