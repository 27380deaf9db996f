--- No page is left out: what has a block of Lua is run by a spec that names the page.
local program = require("spec.support.program")
local read = require("spec.support.files").read

it("every page with Lua is run by spec/docs_spec.lua", function()
  local pages, n = read("spec/docs_spec.lua"), 0
  for path in program.shell("grep -rl '^```lua' --include=*.md README.md docs examples")
    :gmatch("[^\n]+") do
    n = n + 1
    assert.truthy(pages:find(('"%s"'):format(path), 1, true), path)
  end
  assert.is_true(n > 5)
end)
