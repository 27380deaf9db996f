--- The README and the pages in docs: each block of Lua is run and prints what
--- the block under it says, each block of shell commands is one that works,
--- each block of YAML a run file, each block of C a library that loads, each
--- example ends with the line that the README gives. Python is shown, not run.
---
--- Numbers with a point may differ a little: CPUs round otherwise.
local program = require("spec.support.program")
local files = require("spec.support.files")
local read = files.read

local PAGES = { "README.md", "docs/first_steps.md", "docs/porting.md", "docs/pipelines.md",
  "docs/runs.md", "docs/reports.md", "docs/speed.md", "docs/precision.md", "docs/profile.md",
  "docs/simulation.md", "docs/custom_ops.md", "docs/extending.md", "docs/examples.md",
  "docs/popart.md", "examples/README.md" }

-- Fenced blocks in order: {language, text, line}.
local function blocks_of(page)
  local list, n, open = {}, 0, nil
  for line in (read(page) .. "\n"):gmatch("(.-)\n") do
    n = n + 1
    local fence = line:match("^```(.*)$")
    if fence and open then
      open.text = table.concat(open, "\n") .. "\n"
      list[#list + 1], open = open, nil
    elseif fence then
      open = { language = fence, line = n }
    elseif open then
      open[#open + 1] = line
    end
  end
  assert.is_nil(open, page .. ": a block is not closed")
  return list
end

-- Text without its decimal numbers, and these.
local function split(text)
  local numbers = {}
  text = text:gsub("%-?%d+%.%d*e?%-?%d*", function(number)
    numbers[#numbers + 1] = tonumber(number)
    return "#"
  end)
  return text, numbers
end

local function same(want, got, where)
  local want_text, want_numbers = split(want)
  local got_text, got_numbers = split(got)
  assert.equal(want_text, got_text, where)
  for i, number in ipairs(want_numbers) do
    assert.near(number, got_numbers[i], 1e-3 + 0.02 * math.abs(number), where)
  end
end

local function run_lua(block, where)
  local path = program.temporary(block.text)
  local out, err, code = program.run({ path })
  os.remove(path)
  assert.equal(0, code, where .. "\n" .. err)
  return out
end

-- `script.lua` is a file that prints its arguments; targets of make are looked
-- up, not made.
local function run_shell(block, where)
  local script = program.temporary("print(require('lupine').version, ...)")
  local host = (program.shell("realpath " .. program.host)):match("[^\n]+")
  local text = block.text:gsub("%f[%w]script%.lua", script):gsub("'CODE'", "'print(1)'")
    :gsub("%f[%w]make%f[%s]", "make -n"):gsub("build/lupine%f[%s]", host)
  local folder = files.folder()
  local out, err, code = program.shell(("set -e\nexport TMPDIR=%s\n%s"):format(folder, text))
  files.remove(folder)
  os.remove(script)
  assert.equal(0, code, where .. "\n" .. err)
  return out
end

-- A run file: all of its keys are ones that there are, of values that are allowed.
local function run_yaml(block, where)
  local path = program.temporary(block.text)
  os.rename(path, path .. ".yaml")
  local out, err, code = program.run({ "run", "--print-config", path .. ".yaml" })
  os.remove(path .. ".yaml")
  assert.equal(0, code, where .. "\n" .. out .. err)
end

-- A library, of custom operators or streams: it compiles, and lupine takes it.
local function run_c(block, where)
  local takes = block.text:find("step_io.h", 1, true) and "require('popart').StepIO"
    or "require('torch').ops.load_library"
  local source = program.temporary(block.text)
  local compile = ("cc -std=c99 -Wall -Wextra -Werror -shared -fPIC -I include -x c -o %s.so %s")
    :format(source, source)
  local load = ([[%s -e "%s('%s.so')"]]):format(program.host, takes, source)
  local out, err, code = program.shell(compile .. " && " .. load)
  os.remove(source)
  os.remove(source .. ".so")
  assert.equal(0, code, where .. "\n" .. out .. err)
end

for _, page in ipairs(PAGES) do
  describe(page, function()
    local list = blocks_of(page)
    for i, block in ipairs(list) do
      local where = ("%s:%d"):format(page, block.line)
      local after = list[i + 1]
      if block.language == "lua" then
        it(("has Lua that runs at line %d"):format(block.line), function()
          local out = run_lua(block, where)
          assert.equal("", after and after.language, where .. ": no output follows")
          same(after.text, out, where)
        end)
      elseif block.language == "sh" then
        it(("has commands that work at line %d"):format(block.line), function()
          if block.text:find("%f[%w]lua5%.4") and program.build ~= "build" then
            pending("a sanitized module needs a sanitized interpreter")
            return
          end
          run_shell(block, where)
        end)
      elseif block.language == "yaml" then
        it(("has a run file at line %d"):format(block.line), function()
          run_yaml(block, where)
        end)
      elseif block.language == "c" then
        it(("has a library at line %d"):format(block.line), function()
          run_c(block, where)
        end)
      elseif block.language ~= "python" then
        it(("has output under Lua alone at line %d"):format(block.line), function()
          assert.equal("", block.language)
          assert.equal("lua", list[i - 1] and list[i - 1].language)
        end)
      end
    end

    it("links to files that exist", function()
      local folder = page:match("^(.*/)") or ""
      for target in read(page):gmatch("%]%(([^)#]+)%)") do
        if not target:find("^https?:") then
          read(folder .. target)
        end
      end
    end)
  end)
end

describe("the examples", function()
  local rows = {}
  for file, last in read("README.md"):gmatch("\n| `(examples/[%w_]+%.lua)` |[^|]*| `([^`]*)` |") do
    rows[file] = last
  end

  it("all stand in the README", function()
    local found = io.popen("ls examples/*.lua")
    for file in found:lines() do
      assert.truthy(rows[file], file)
    end
    found:close()
  end)

  it("show the first one as it stands", function()
    local text = read("examples/linear.lua"):gsub("^%-%-[^\n]*\n", ""):gsub("^%-%-[^\n]*\n", "")
    assert.truthy(read("README.md"):find("```lua\n" .. text .. "```", 1, true))
  end)

  for file, last in pairs(rows) do
    if not last:find("…", 1, true) then -- those hold times of this machine
      it(("end as the README says: %s"):format(file), function()
        -- on a machine of its own: one of them wants a certain IPU
        local out, err, code = program.shell(("d=$(mktemp -d); LUPINE_DEVICES=$d %s %s; c=$?; "
          .. "rm -r $d; exit $c"):format(program.host, file))
        assert.equal(0, code, err)
        same(last, out:match("([^\n]*)\n$"), file)
      end)
    end
  end
end)
