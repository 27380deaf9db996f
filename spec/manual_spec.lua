--- The manual (docs/site): every documented name and every name of the loaded modules
--- is on a page, with a text and a signature; pages are valid HTML; links and the
--- search's addresses resolve. The man page is one that mandoc reads.
local files = require("spec.support.files")
local program = require("spec.support.program")

package.path = "docs/site/?.lua;" .. package.path
local surface = require("surface")

local modules = surface.gather()
local by_name = {}
surface.each(modules, function(entry)
  by_name[entry.name:gsub(":", ".")] = entry
end)
for _, module in ipairs(modules) do
  by_name[module.name] = by_name[module.name] or module
end

-- ---- names -----------------------------------------------------------------------

-- What documents call otherwise.
local GROUPS = { _DistributedOptions = "Distributed", _PrecisionOptions = "Precision",
  _JitOptions = "Jit", _TrainingOptions = "Training", _TensorLocationOptions = "TensorLocations",
  _PopartOptions = "_Popart" }

local function written(name)
  name = name:gsub("%(.*$", ""):gsub("%.__init__$", ""):gsub("%.__call__$", "")
    :gsub("::", "."):gsub("^poptorch%.options%.(_%a+)", function(group)
      return GROUPS[group] and "poptorch.Options." .. GROUPS[group]
    end)
  if name == "IExecutionStrategy" then
    return "poptorch.IExecutionStrategy"
  end
  return (by_name[name] or name:find(".", 1, true)) and name or "popart." .. name
end

-- The entry of a name, or of a class above it that has the method.
local function entry_of(name)
  local class, key = name:match("^(.*)%.([^.]+)$")
  while not by_name[name] and class and by_name[class] and by_name[class].above do
    class = by_name[class].above
    name = class .. "." .. key
  end
  return by_name[name]
end

describe("the manual's names", function()
  it("are all that documents have", function()
    for _, row in ipairs(dofile("spec/api/api.lua").rows()) do
      if row.present then
        assert.truthy(entry_of(written(row.name)), row.name)
      end
    end
  end)

  it("each have a text", function()
    surface.each(modules, function(entry)
      assert.is_false(surface.lacks_text(entry), entry.name)
    end)
  end)

  it("are of modules that say what they are", function()
    for _, module in ipairs(modules) do
      assert.not_equal("", module.intro, module.name)
    end
  end)

  it("say how they are called", function()
    surface.each(modules, function(entry)
      if entry.kind == "function" or entry.kind == "class" or entry.kind == "operator" then
        assert.truthy(entry.forms[1] or entry.kind == "class", entry.name)
      end
    end)
  end)

  it("have their defaults", function()
    local function form(name)
      return table.concat(by_name[name].forms, "\n")
    end
    assert.matches("keepdim=False", form("torch.sum"), 1, true)
    assert.matches("stride=1", form("torch.nn.Conv2d"), 1, true)
    assert.matches("lr=1e-3", form("torch.optim.Adam"), 1, true)
    assert.matches("default 1", by_name["poptorch.Options.deviceIterations"].text, 1, true)
  end)

  it("of classes and functions that helpers make are there", function()
    local texts = require("lupine.texts")
    texts.each(function(module, name)
      local class = name:match("^(.*)%.") or name
      assert.truthy(texts.value(module, class), module .. ": " .. name)
    end)
  end)
end)

-- ---- the site --------------------------------------------------------------------

describe("the site", function()
  local folder, ids, pages = nil, {}, {}

  setup(function()
    folder = files.folder()
    local out, err, code = program.shell(("%s docs/site/build.lua %s"):format(program.host, folder))
    assert(code == 0, out .. err)
    for name in (program.shell(("cd %s && ls *.html"):format(folder))):gmatch("[^\n]+") do
      local text = files.read(folder .. "/" .. name)
      pages[name], ids[name] = text, {}
      for id in text:gmatch('%sid="([^"]*)"') do
        assert(not ids[name][id], name .. ": twice: " .. id)
        ids[name][id] = true
      end
    end
  end)

  teardown(function()
    files.remove(folder)
  end)

  local function resolves(address, from)
    local page, id = address:match("^([^#]*)#?(.*)$")
    page = page == "" and from or page
    return (pages[page] or page == "style.css") and (id == "" or ids[page][id])
  end

  it("has a page of every module and guide", function()
    for _, module in ipairs(modules) do
      assert.is_string(pages[module.name .. ".html"], module.name)
    end
    for file in (program.shell("ls docs/*.md")):gmatch("[^\n]+") do
      local found = false
      for _, guide in ipairs(require("guides").list) do
        found = found or guide[1] == file
      end
      assert.is_true(found, file .. ": not in docs/site/guides.lua")
    end
  end)

  it("is valid HTML", function()
    local out, err, code = program.shell(("cd %s && tidy -e -q *.html"):format(folder))
    assert.equal("", out .. err)
    assert.equal(0, code)
  end)

  it("has links that resolve, and needs no network", function()
    for name, text in pairs(pages) do
      for address in text:gmatch('%shref="([^"]*)"') do
        assert.truthy(address:find("^https?:") or resolves(address, name),
          name .. ": " .. address)
      end
      for address in text:gmatch('%ssrc="([^"]*)"') do
        local file <close> = io.open(folder .. "/" .. address)
        assert.truthy(file and not address:find("^%.*/"), address)
      end
    end
  end)

  it("is searched by addresses that resolve, of every name", function()
    local text = files.read(folder .. "/index.js"):match("^var INDEX = (.*);\n$")
    local found = {}
    for _, row in ipairs(require("lupine.core").json_decode(text, "index.js")) do
      assert.truthy(resolves(row[2]), row[2])
      found[row[1]] = true
    end
    surface.each(modules, function(entry)
      assert.is_true(found[entry.name], entry.name)
    end)
  end)
end)
