--- The page of the command line: what --help of the program and of each command prints.
local html = require("html")

local M = { page = "guide-command-line", title = "The command line" }

local function help(program, words)
  local pipe = assert(io.popen(("%s %s --help 2>&1"):format(program, words)))
  local text = pipe:read("a")
  assert(pipe:close(), "no help: " .. words)
  return (text:gsub("%f[^%s%z]" .. program:gsub("%p", "%%%0") .. "%f[%s]", "lupine"))
end

--- The body of the page, and its headings as guides have them.
---@param program string
---@return string body
---@return table[] headings
function M.body(program)
  local whole = help(program, "")
  local out = { ("<h1>%s</h1>\n<pre><code>%s</code></pre>"):format(M.title, html.escape(whole)) }
  local headings = { { slug = "lupine", title = "lupine" } }
  for name in (whole:match("\nCommands.-\n(.*)$") or ""):gmatch("%f[^\n%z]  (%l+)  ") do
    headings[#headings + 1] = { slug = name, title = "lupine " .. name }
    out[#out + 1] = ('<h2 id="%s">lupine %s</h2>\n<pre><code>%s</code></pre>'):format(name, name,
      html.escape(help(program, name)))
  end
  out[1] = out[1]:gsub("<h1>", '<h1 id="lupine">', 1)
  return table.concat(out, "\n"), headings
end

return M
