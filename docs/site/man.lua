--- The man page, lupine.1, from what `lupine --help` prints and the README's table of
--- environment variables, so that both say the same.
---
---     build/lupine docs/site/man.lua build/lupine >build/lupine.1
local core = require("lupine.core")

local program = assert(arg[1], "man.lua: the program is missing")

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read("a")
end

-- Text of roff: backslashes, and what begins a line like a request.
local function plain(text)
  return (text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("`", ""):gsub("\n([%.'])", "\n\\&%1")
    :gsub("^([%.'])", "\\&%1"))
end

-- The help's lines "  HEAD   TEXT", with those that go on, as {head, text}; and other lines.
local function parse(help)
  local options, commands, rest = {}, {}, {}
  local list = options
  for line in help:gsub("^usage:.-\n  %-", "  -"):gmatch("[^\n]+") do
    local head, text = line:match("^  (%S.-)%s%s+(%S.*)$")
    if head then
      list[#list + 1] = { head, text }
    elseif line:find("^%s") and #list > 0 then
      list[#list][2] = list[#list][2] .. " " .. line:match("^%s*(.*)$")
    elseif line:find("^Commands") then
      list = commands
    else
      rest[#rest + 1] = line
    end
  end
  return options, commands, rest
end

local function section(out, title, rows)
  out[#out + 1] = ".SH " .. title
  for _, row in ipairs(rows) do
    out[#out + 1] = (".TP\n.B %s\n%s"):format(plain(row[1]), plain(row[2]))
  end
end

-- Rows of the table below "| environment variable |".
local function environment(readme)
  local rows, inside = {}, false
  for line in readme:gmatch("[^\n]+") do
    local head, text = line:match("^| (.-) | (.-) ?|$")
    if line:find("^| environment variable |") then
      inside = true
    elseif inside and not line:find("^|") then
      break
    elseif inside and head and not head:find("^%-") then
      rows[#rows + 1] = { (head:gsub("`", "")), text }
    end
  end
  return rows
end

local function help_of()
  local pipe = assert(io.popen(program .. " --help"))
  local text = pipe:read("a")
  assert(pipe:close(), "man.lua: --help failed")
  return text
end

local function page()
  local options, commands, rest = parse(help_of())
  local date = assert(read("CHANGELOG.md"):match("%d%d%d%d%-%d%d%-%d%d"), "CHANGELOG.md: no date")
  local out = { ('.TH LUPINE 1 "%s" "lupine %s" "User Commands"'):format(date, core.version),
    ".SH NAME\nlupine \\- a training environment scripted in Lua",
    ".SH SYNOPSIS\n.B lupine\n[\\fIoptions\\fR] [\\fIscript\\fR [\\fIarguments\\fR]]\n.br\n"
      .. ".B lupine\n[\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]",
    ".SH DESCRIPTION\nRuns scripts of Lua 5.4 that have tensors and autograd with PyTorch's\n"
      .. "names, a graph compiler, and a simulated system of IPUs with PopTorch's and\n"
      .. "PopART's interfaces.\n" .. plain(table.concat(rest, "\n")) }
  section(out, "OPTIONS", options)
  section(out, "COMMANDS", commands)
  section(out, "ENVIRONMENT", environment(read("README.md")))
  out[#out + 1] = ".SH EXIT STATUS\nThat of the script as for\n.BR lua (1):\n0 at its end, 1 after "
    .. "an error, else what os.exit was given.\nA command that stopped early with all that going "
    .. "on takes saved gives 75."
  out[#out + 1] = ".SH SEE ALSO\n.BR lua (1);\nthe manual, a folder of HTML"
  return table.concat(out, "\n") .. "\n"
end

io.write(page())
