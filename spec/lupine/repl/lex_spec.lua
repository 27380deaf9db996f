local lex = require("lupine.repl.lex")

describe("lupine.repl.lex", function()
  local function texts(text)
    local list = {}
    for i, token in ipairs(lex.tokens(text)) do
      list[i] = token.text
    end
    return list
  end

  -- The names that the top level declares, and what stands behind each.
  local function declared(text)
    local list = {}
    for i, d in ipairs(lex.chunk(text).locals) do
      list[i] = table.concat(d.names, " ") .. " | " .. text:sub(d.stop + 1)
    end
    return list
  end

  it("cuts a text into tokens as Lua does", function()
    assert.same({ "a", ".", "b", "..", '"x\\"y"', "...", "//", "2" },
      texts('a.b .. "x\\"y" ... -- c\n --[==[ ]] \n ]==] // 2'))
    assert.same({ "[=[a]]]=]", "'\\\\'", "0x1p-4", "3.", "1e+5", ".5", "~=", "~", "::" },
      texts("[=[a]]]=] '\\\\' 0x1p-4 3. 1e+5 .5 ~= ~ ::"))
    assert.same({ "'a\\z\n  b'", "x" }, texts("'a\\z\n  b' x"))
  end)

  it("finds the locals of the top level alone", function()
    assert.same({ "a | ; local b = 1 c = 2", "b |  c = 2" }, declared("local a; local b = 1 c = 2"))
    assert.same({}, declared("do local a = 1 end for i = 1, 2 do local b end"))
    assert.same({}, declared("if x then local a else local b end repeat local c until c"))
    assert.same({}, declared("function f() local a end x = [[ local z ]] -- local q"))
    assert.same({ "f | " }, declared("local function f() if x then return 1 end local a end"))
  end)

  it("knows where a declaration ends", function()
    assert.same({ "x |  y = 2" }, declared("local x = f(1)[2].a:b 'c' {d} y = 2"))
    assert.same({ "x | \n(g)()" }, declared("local x = 1\n(g)()"))
    assert.same({ "x | " }, declared("local x = f\n(g)()"))
    assert.same({ "x | (f)()" }, declared("local x = {}(f)()"))
    assert.same({ "a b |  g()" }, declared("local a, b = not -x ^ 2 .. 'y', #t g()"))
    assert.same({ "x |  f()" }, declared("local x = function(a) local y = 1 end f()"))
    assert.same({ "x y | ; z = 1" }, declared("local x <const>, y <close> = 1, nil; z = 1"))
    assert.same({ "x |  ::l::" }, declared("local x ::l::"))
    assert.same({ "x |  return x" }, declared("local x = (1 + 2) * f{1} return x"))
  end)

  it("finds what the top level returns", function()
    local text = "local x = 1 return x, 2; -- done"
    local results = lex.chunk(text).results
    assert.equal(" x, 2", text:sub(results.to + 1, results.stop))
    assert.is_nil(lex.chunk("f = function() return 1 end").results)
  end)
end)
