-- Checks that no compiler makes: layers of includes and of require, sizes of
-- files, bare heap calls, rounding to half types, numbers for attributes,
-- columns, heads of files, names of types, paths of one machine, unfinished
-- work, public Lua functions without an annotation of what they take and give.
-- Runs on the tracked files; prints a line per fault and exits with 1. The size
-- of files is looked at only when told so (lint.lua full): a file may outgrow
-- the cap for a commit or two, and the suite shall not fail for that.

-- Lowest first: a file includes its own layer and lower ones. A longer prefix
-- wins over a shorter one.
local layers = {
  "include/", "src/base/", "src/tensor/", "runtime/arch/", "runtime/cost/", "src/ir/",
  "src/kernel/", "src/ops/", "src/autodiff/", "runtime/program.", "src/passes/", "runtime/exec/",
  "runtime/report/", "src/io/", "src/bind/", "src/main",
}

-- The same for the modules of Lua, which require their own layer and lower
-- ones, at the top of a file and inside functions alike: helpers, torch, what
-- both front ends and scripts use, PopART's options, poptorch, its options for
-- several processes, what trains and keeps runs, and the read-eval-print loop, which
-- explains them all.
-- What prints values is one of the helpers, and public.
local lua_layers = {
  { "lupine.core", "lupine.base.", "lupine.show" },
  { "torch" },
  { "lupine", "torchvision", "pva" },
  { "popart" },
  { "poptorch" },
  { "popdist" },
  { "lupine.trainer", "lupine.run", "lupine.commands" },
  { "lupine.repl", "lupine.complete", "lupine.describe", "lupine.description", "lupine.texts",
    "lupine.annotations" },
}
local lua_headers = { ["lua.h"] = true, ["lauxlib.h"] = true, ["lualib.h"] = true,
  ["luaconf.h"] = true }
local MAX_LINES, MAX_COLUMNS = 700, 80

local faults = 0

local function fault(file, n, ...)
  faults = faults + 1
  print(("%s:%d: %s"):format(file, n, string.format(...)))
end

local function layer_of(file)
  for i, prefix in ipairs(layers) do
    if file:sub(1, #prefix) == prefix then
      return i
    end
  end
  return nil
end

local function lua_layer_of(module)
  local layer, longest = nil, 0
  for i, prefixes in ipairs(lua_layers) do
    for _, prefix in ipairs(prefixes) do
      if #prefix > longest and module:sub(1, #prefix) == prefix then
        layer, longest = i, #prefix
      end
    end
  end
  return layer
end

-- Tables of operators and kernels may be long.
local function may_be_long(file)
  return file:find("%.def$") or file:find("^src/ops/") or file:find("^src/kernel/")
    or not file:find("%.[chl]u?a?$")
end

local function check_include(file, n, line)
  local open, path = line:match('^%s*#%s*include%s*([<"])([^>"]+)')
  if not path then
    return
  end
  if lua_headers[path] and not file:find("^src/bind/") and not file:find("^src/main")
      and not file:find("^spec/fuzz/harness/") then
    fault(file, n, "only src/bind, src/main and spec/fuzz/harness include %s", path)
  elseif open == '"' then
    local own, other = layer_of(file), layer_of(path)
    local harness = file:find("^spec/fuzz/") and path:find("^spec/fuzz/harness/")
      or file:find("^spec/tools/") and path:find("^spec/tools/")
      or file:find("^include/lupine/") and not path:find("/", 1, true) -- installed side by side
    if not other and not harness then
      fault(file, n, 'include "%s": not a path from the project root in a layer', path)
    elseif own and other and other > own then
      fault(file, n, "%s includes the higher layer %s", layers[own], path)
    end
  end
end

-- Comments and strings of one line are blanked; block comments over several
-- lines are followed by the caller's state.
local function code_of(line, in_comment)
  if in_comment then
    local _, stop = line:find("*/", 1, true)
    if not stop then
      return "", true
    end
    line = line:sub(stop + 1)
  end
  line = line:gsub('\\.', ""):gsub('"[^"]*"', '""'):gsub("/%*.-%*/", ""):gsub("//.*", "")
  local start = line:find("/*", 1, true)
  if start then
    return line:sub(1, start - 1), true
  end
  return line, false
end

local heap = { malloc = true, calloc = true, realloc = true, free = true, aligned_alloc = true,
  posix_memalign = true, strdup = true, strndup = true }

local function check_code(file, n, code)
  for before, name in code:gmatch("([%w_%.>]*)%f[%w_]([%a_][%w_]*)%s*%(") do
    if heap[name] and before == "" then
      fault(file, n, "%s outside src/base/mem.c", name)
    end
  end
end

-- What rounds a float to a half type: the stores, and the headers of both.
local rounds = { "lp_%w+_to_half", "lp_%w+_to_bf16", "_cvtps_ph", "_cvtss_sh", "vcvt_f16_f32",
  "_cvtne%w*pbh" }
local may_round = { ["src/base/half.h"] = true, ["src/tensor/dtype.c"] = true,
  ["src/kernel/loops/simd_convert.c"] = true, ["src/kernel/loops/simd_stored.c"] = true,
  ["src/kernel/simd_rounding.c"] = true,
  ["src/kernel/product/simd_half_sums.c"] = true }

local function check_rounding(file, n, code)
  for _, name in ipairs(rounds) do
    local found = code:match("%f[%w_]_*" .. name .. "%f[^%w_]") or code:match(name .. "%s*%(")
    if found then
      fault(file, n, "%s: only src/kernel/loops/simd_convert.c, loops over stored halves "
        .. "and lp_scalar_store round to half types", found)
    end
  end
end

-- getline's line comes from the C library's heap and goes back there; Lua's own blocks
-- are there, too.
local owns_libc_memory = { ["src/base/mem.c"] = true, ["src/main_edit.c"] = true,
  ["src/main_heap.c"] = true }

-- The macros that make an operator's record, whose first string is its
-- signature.
local records = { "LpOp op_", "LP_PRIMITIVE%(", "LP_EXPANDED%(", "LP_COMPOSITE%(", "LP_FORMULA%(",
  "LP_LOSS%(", "LP_VIEW%(" }

-- Whether operators' signatures stand in the file: it has their records, and
-- these are not made of rows that stand elsewhere.
local function has_signatures(file)
  local text <close> = assert(io.open(file))
  local code = text:read("a")
  for _, record in ipairs(records) do
    if file:find("^src/ops/.+%.c$") and not code:find('#include "[^"]+%.def"')
        and code:find("%f[%w_]" .. record) then
      return true
    end
  end
  return false
end

-- What reads an operator's attributes away from its signature names them
-- (src/kernel/attrs.h; spec/ops/attrs_spec.lua compares the names).
local function check_attribute(file, n, code)
  if code:find("attr%[%d+%]") and not has_signatures(file) then
    fault(file, n, "an attribute by number in a file without its signature: name it in "
      .. "src/kernel/attrs.h")
  end
end

-- Status codes that C raises.
local raised = {}

local function check_codes(file)
  local n = 0
  for line in io.lines(file) do
    n = n + 1
    local code = line:match("^ERROR%((%w[%w_]*)")
    if code and not raised[code] then
      fault(file, n, "no file of C raises LP_E_%s", code)
    end
  end
end

local machine_paths = { "/" .. "work/", "/" .. "home/%w", "/" .. "root/" }
local unfinished = { "TO" .. "DO", "FIX" .. "ME", "XX" .. "X" }

local function check_any(file, n, line)
  for _, pattern in ipairs(machine_paths) do
    if (" " .. line):find("[^%w%.%-]" .. pattern) then
      fault(file, n, "a path of one machine")
    end
  end
  for _, word in ipairs(unfinished) do
    if line:find("%f[%w]" .. word .. "%f[%W]") then
      fault(file, n, "%s: finish it or leave it out", word)
    end
  end
  if line:find("[ \t]$") then
    fault(file, n, "blank at the end")
  end
end

-- A type has one name in the whole project, so that any header may meet any
-- other and a debugger shows the right one.
local type_at = {}

local function check_type(file, n, code)
  local name = code:match("^}%s*(Lp%w+);") or code:match("^typedef%s.-%f[%w](Lp%w+);")
    or code:match("^typedef struct (Lp%w+) {")
  if not name or file:find("^spec/") then
    return
  elseif type_at[name] and type_at[name] ~= file then
    fault(file, n, "the type %s is declared in %s, too", name, type_at[name])
  end
  type_at[name] = file
end

local function check_file(file)
  local is_c = file:find("%.[ch]$")
  local n, in_comment = 0, false
  for line in io.lines(file) do
    n = n + 1
    check_any(file, n, line)
    if is_c then
      if n == 1 and not line:find("^/%*") then
        fault(file, n, "no comment at the head that says what the file does")
      end
      check_include(file, n, line)
      local columns = utf8.len((line:gsub("\t", "        "))) or #line
      if columns > MAX_COLUMNS then
        fault(file, n, "%d columns, allowed are %d", columns, MAX_COLUMNS)
      end
      local code
      code, in_comment = code_of(line, in_comment)
      check_type(file, n, code)
      for name in code:gmatch("LP_E_([%w_]+)") do
        raised[name] = true
      end
      if layer_of(file) then
        check_attribute(file, n, code)
      end
      if layer_of(file) and not owns_libc_memory[file] then
        check_code(file, n, code)
      end
      if layer_of(file) and not may_round[file] then
        check_rounding(file, n, code)
      end
    end
  end
  if arg[1] == "full" and n > MAX_LINES and not may_be_long(file) then
    fault(file, n, "%d lines, allowed are %d", n, MAX_LINES)
  end
end

-- ---- what Lua files require --------------------------------------------------

-- Calls fn(module) for each require with a name in a line of code; the name may
-- go on behind it ("torch.nn." .. name).
local function each_require(line, fn)
  local at = 1
  while true do
    local quote = line:match("^[^'\"]*()", at) or #line + 1 -- a string may go on in the next
    local code, mark = line:sub(at, quote - 1), line:sub(quote, quote)
    if mark == "" or code:find("--", 1, true) then
      return
    end
    local stop = quote + 1
    while stop <= #line and line:sub(stop, stop) ~= mark do
      stop = stop + (line:sub(stop, stop) == "\\" and 2 or 1)
    end
    if code:find("%f[%w_]require%s*%(?%s*$") then
      fn(line:sub(quote + 1, stop - 1))
    end
    at = stop + 1
  end
end

-- Libraries of Lua's own, and Debian's bindings.
local STANDARD = { coroutine = true, debug = true, io = true, math = true, os = true,
  package = true, string = true, table = true, utf8 = true,
  yaml = true }

local function check_requires(file)
  local own, n = file:match("^lua/(.*)%.lua$"):gsub("/init$", ""):gsub("/", "."), 0
  local layer = lua_layer_of(own)
  if not layer then
    return fault(file, 1, "the module %s is in no layer", own)
  end
  for line in io.lines(file) do
    n = n + 1
    each_require(line, function(module)
      local other = lua_layer_of(module)
      if STANDARD[module] then
        return
      elseif not other then
        fault(file, n, "require of %s, which is in no layer", module)
      elseif other > layer then
        fault(file, n, "%s requires %s of a higher layer", own, module)
      end
    end)
  end
end

-- ---- annotations of public functions ----------------------------------------

-- The name of the table that a file returns, or what `name = function` pairs
-- of a table written there say: {name of a local function = true}.
local function returned(lines)
  for i = #lines, 1, -1 do
    local line = lines[i]
    if line:find("^return ") then
      local table_name = line:match("^return ([%a_][%w_]*)$")
        or line:match("^return .-close%(([%a_][%w_]*)")
        or line:match("^return setmetatable%(([%a_][%w_]*)")
      local inside, named = line:match("^return {(.*)}$"), {}
      for value in (inside or ""):gmatch("=%s*([%a_][%w_]*)") do
        named[value] = true
      end
      return table_name, named
    end
  end
  return nil, {}
end

-- Name, parameters and indent of a public function that begins on a line.
local function public(line, table_name, named)
  local indent, name, params = line:match("^(%s*)local function ([%a_][%w_]*)(%b())")
  if name and named[name] then
    return name, params, indent
  elseif not table_name then
    return nil
  end
  local T = table_name:gsub("%p", "%%%0")
  indent, name, params = line:match("^(%s*)function " .. T .. "[.:]([%a_][%w_]*)(%b())")
  if not name then
    indent, name, params = line:match("^(%s*)" .. T .. "%.([%a_][%w_]*) = function(%b())")
  end
  if name and not name:find("^_") then
    return name, params, indent
  end
  return nil
end

-- Does the function that begins on line i give a value at its end?
local function gives(lines, i, indent)
  if lines[i]:find("%f[%w]end%)?$") then
    return lines[i]:find("%f[%w]return%s+%S.-%f[%w]end") ~= nil
  end
  for k = i + 1, #lines do
    if lines[k]:find("^" .. indent .. "end") then
      return false
    elseif lines[k]:find("^" .. indent .. "  return%s+%S") then
      return true
    end
  end
  return false
end

local function check_annotation(file, lines, i, name, params, indent)
  local block, text, k = {}, false, i - 1
  while k > 0 and lines[k]:find("^%s*%-%-%-") do
    block[lines[k]:match("@param ([%w_.]+)") or lines[k]:match("@return") or k] = true
    text = text or lines[k]:find("^%s*%-%-%- %S") ~= nil
    k = k - 1
  end
  if not text then
    return fault(file, i, "%s has no comment (---) that says what it does", name)
  end
  for param in params:gmatch("[%w_.]+") do
    if param ~= "self" and not block[param] then
      fault(file, i, "%s has no ---@param %s", name, param)
    end
  end
  if gives(lines, i, indent) and not block["@return"] then
    fault(file, i, "%s has no ---@return", name)
  end
end

local function check_annotations(file)
  local lines = {}
  for line in io.lines(file) do
    lines[#lines + 1] = line
  end
  local table_name, named = returned(lines)
  for i, line in ipairs(lines) do
    local name, params, indent = public(line, table_name, named)
    if name then
      check_annotation(file, lines, i, name, params, indent)
    end
  end
end

-- The tracked files, or all sources where there is no repository.
local function files()
  local p = assert(io.popen("git ls-files 2>/dev/null"))
  local list = {}
  for file in p:lines() do
    list[#list + 1] = file
  end
  p:close()
  if #list == 0 then
    p = assert(io.popen("find Makefile src runtime lua spec examples -type f 2>/dev/null"))
    for file in p:lines() do
      list[#list + 1] = file
    end
    p:close()
  end
  return list
end

local text = { c = true, h = true, def = true, lua = true, sh = true, md = true, supp = true }
local checked = 0
for _, file in ipairs(files()) do
  local extension = file:match("%.(%w+)$")
  local f = (text[extension] or file == "Makefile") and io.open(file)
  if f then -- a tracked file may be gone from the working tree
    f:close()
    check_file(file)
    if file:find("^lua/.*%.lua$") then
      check_requires(file)
      check_annotations(file)
    end
    checked = checked + 1
  end
end
check_codes("src/base/errors.def")
print(("lint: %d files, %d faults"):format(checked, faults))
os.exit(faults == 0)
