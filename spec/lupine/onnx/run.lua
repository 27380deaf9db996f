--- Runs the cases of ONNX's own tests whose names hold a text:
---
---     build/lupine spec/lupine/onnx/run.lua [TEXT | ""] [compiled] [quiet]
---
--- prints those that fail and why; the last line is `N of M pass`.
package.path = "./?.lua;" .. package.path
local cases = require("spec.lupine.onnx.cases")

local text, compiled, quiet = arg[1] or "", arg[2] == "compiled", arg[3] == "quiet"
local passed, total = 0, 0
for _, group in ipairs(cases.GROUPS) do
  local ok, of = 0, 0
  for _, name in ipairs(cases.names(group)) do
    if name:find(text, 1, true) then
      local why = cases.run(group, name, compiled)
      ok, of = ok + (why and 0 or 1), of + 1
      if why and not quiet then
        print(("%s/%s: %s"):format(group, name, why:sub(1, 300)))
      end
    end
  end
  print(("%s: %d of %d"):format(group, ok, of))
  passed, total = passed + ok, total + of
end
print(("%d of %d pass"):format(passed, total))
