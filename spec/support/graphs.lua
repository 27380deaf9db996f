--- Graphs as text, for the specs of the intermediate form and its passes.
local core = require("lupine.core")

local M = {}

local HEAD = "graph\n"

--- Text of a whole graph from the lines of a specification: the indentation
--- goes, the head line is added, and an origin unless the lines have one.
function M.text(lines, head)
  local out, has_origin = {}, lines:find("origin", 1, true)
  for line in lines:gmatch("[^\n]+") do
    line = line:match("^%s*(.-)%s*$")
    if not has_origin and line:find("^[%%=]") then
      out[#out + 1] = "origin"
      has_origin = true
    end
    if line ~= "" then
      out[#out + 1] = line
    end
  end
  return (head or HEAD) .. table.concat(out, "\n") .. "\n"
end

--- Parses, and prints again: the canonical text.
function M.canonical(text)
  return core.graph_parse(text):print()
end

--- Text after one pass (a name) or after all common passes (nil).
function M.run_pass(text, name)
  local g = core.graph_parse(text)
  g:verify()
  if name then
    g:run_pass(name)
  else
    g:run_passes()
  end
  return g:print()
end

--- `before` becomes `after` under the pass; both in the form of M.text.
--- Values of `after` may have any labels.
function M.becomes(pass, before, after, head)
  local want = M.canonical(M.text(after, head))
  local got = M.run_pass(M.text(before, head), pass)
  if got ~= want then
    error(("pass %s gave\n%s\nexpected\n%s"):format(pass, got, want), 2)
  end
end

--- The pass leaves it as it is.
function M.stays(pass, before, head)
  M.becomes(pass, before, before, head)
end

return M
