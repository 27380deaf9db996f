-- CSV: fields by RFC 4180, types of columns, hostile files by a table.
local csv = require("lupine.csv")
local helper = require("spec.helper")
local torch = require("torch")

local path

setup(function()
  path = os.tmpname()
end)
teardown(function()
  os.remove(path)
end)

local function read(text, ...)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  return csv.read(path, ...)
end

describe("csv.read gives", function()
  it("columns of whole numbers, numbers and text, by name", function()
    local t = read("a,b,c\n1,1.5,x\n-2,,\"y,\"\"z\"\"\"\n3,1e3,\n")
    assert.same({ "a", "b", "c" }, t.names)
    assert.equal(3, t.rows)
    assert.equal(torch.int64, t:column("a").dtype)
    assert.same({ 1, -2, 3 }, t:column("a"):tolist())
    local b = t:column("b")
    assert.equal(torch.float64, b.dtype)
    assert.same({ 1.5, 1000.0 }, { b[0]:item(), b[2]:item() })
    assert.is_true(b[1]:item() ~= b[1]:item())
    assert.same({ "x", 'y,"z"', "" }, t:column("c"))
    local rows = t:tensor({ "a", "b" }):index_select(0, torch.tensor({ 0, 2 }))
    assert.same({ { 1.0, 1.5 }, { 3.0, 1000.0 } }, rows:tolist())
    assert.equal(torch.float32, t:tensor({ "a" }).dtype)
  end)

  it("the same with other line ends, delimiters, a byte-order mark, no last line end", function()
    for _, text in ipairs({ "a;b\r\n1;2\r\n", "\xef\xbb\xbfa;b\n1;2", "\n\na;b\n\n1;2\n\n",
      '"a";"b"\n"1";"2"\n' }) do
      local t = read(text, { delimiter = ";" })
      assert.same({ "a", "b" }, t.names)
      assert.same({ 1 }, t:column("a"):tolist())
      assert.same({ 2 }, t:column("b"):tolist())
    end
    local t = read('1\t"two\nlines"\n', { header = false, delimiter = "\t" })
    assert.same({ "0", "1" }, t.names)
    assert.same({ "two\nlines" }, t:column("1"))
  end)

  it("exact integers, and text for what only looks like a number", function()
    local t = read("a,b,c,d\n9223372036854775807,9223372036854775808,0x10,1e\n")
    assert.equal(math.maxinteger, t:column("a")[0]:item())
    assert.equal(2.0 ^ 63, t:column("b")[0]:item())
    assert.same({ "0x10" }, t:column("c"))
    assert.same({ "1e" }, t:column("d"))
  end)

  it("columns without rows", function()
    assert.equal(0, read("a,b\n").rows)
  end)
end)

it("csv.read refuses damaged files, naming the line", function()
  local cases = {
    { "", "no lines" },
    { "\n\n", "no lines" },
    { "a,b\n1\n", "line 2: 1 fields; the first line has 2" },
    { "a,b\n1,2,3\n", "line 2: 3 fields" },
    { 'a\n"x\n', "line 3: a quoted field without its end" },
    { 'a\n"x"y\n', "line 2: text after a quoted field" },
    { 'a\nx"y\n', "line 2: a quote inside" },
    { "a\nx\0y\n", "line 2: a zero byte" },
    { 'a\n"x\ny"\n"z" \n', "line 4: text after" },
  }
  for _, c in ipairs(cases) do
    helper.raises("ValueError", c[2], function()
      read(c[1])
    end)
  end
  helper.raises("ValueError", "one character", function()
    read("a\n", { delimiter = "::" })
  end)
  helper.raises("KeyError", "no column 'hight' %(nearest: 'height'%)", function()
    read("height\n1\n"):column("hight")
  end)
  helper.raises("ValueError", "column 'b' holds text", function()
    read("a,b\n1,x\n"):tensor()
  end)
  helper.raises("OSError", "No such file", function()
    csv.read(path .. ".none")
  end)
end)
