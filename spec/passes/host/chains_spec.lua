--- Chains of pointwise operators in one pass: how many passes there are, by
--- arithmetic, and that no bit differs from eager calls.
local compiled = require("spec.support.compiled")
local graphs = require("spec.support.graphs")
local torch = require("torch")

-- The instructions of fn, compiled.
local function instructions(fn, inputs)
  local want = table.pack(fn(table.unpack(inputs)))
  local got, exec = compiled.run(fn, inputs)
  for i, t in ipairs(want) do
    assert.is_true(compiled.same_bits(got[i], t), "result " .. i)
  end
  return exec:stats().instructions
end

describe("a chain of pointwise operators", function()
  local inputs = {}
  for i = 1, 36 do
    inputs[i] = torch.randn(16, 8)
  end

  it("is cut where a pass would read more operands than it can", function()
    local function sum(...)
      local all = { ... }
      local y = all[1]
      for i = 2, #all do
        y = y + all[i]
      end
      return y
    end
    -- 24 operands, two for each addition
    assert.equal(1, instructions(sum, { table.unpack(inputs, 1, 13) }))
    assert.equal(2, instructions(sum, { table.unpack(inputs, 1, 14) }))
    assert.equal(math.ceil((#inputs - 1) / 12), instructions(sum, inputs))
  end)

  it("is cut where its operators have more operands than that", function()
    local function chain(n)
      return function(x)
        for _ = 1, n do
          x = torch.tanh(x)
        end
        return x
      end
    end
    -- 24 operands, one for each operator
    assert.equal(1, instructions(chain(24), { inputs[1] }))
    assert.equal(2, instructions(chain(25), { inputs[1] }))
  end)

  it("leaves out what has another shape, or is read in between", function()
    assert.equal(2, instructions(function(x, y)
      return torch.tanh(x["0:1"]) + y
    end, inputs))
    assert.equal(3, instructions(function(x)
      local y = torch.tanh(x)
      return y * y:sum(0)
    end, inputs))
    -- neighbours that read one large operand, a row of it or both
    local row, rows = torch.rand(1, 1 << 18), torch.rand(2, 1 << 18)
    assert.equal(2, instructions(function(x, y)
      return x + y, torch.relu(x)
    end, { row, rows }))
    assert.equal(2, instructions(function(x, y)
      return torch.relu(x), x + y
    end, { row, rows }))
    assert.equal(1, instructions(function(x, y)
      return x + y, torch.relu(x)
    end, { row, row * 2 }))
    -- two results, of which the second needs more of the first
    assert.equal(1, instructions(function(x, y)
      local z = torch.tanh(x)
      return z, z + y
    end, inputs))
  end)

  it("reads an operand whose short rows repeat along dimensions between", function()
    for _, sizes in ipairs({ { 2, 3, 50, 8 }, { 3, 7, 700, 3 }, { 1, 1, 2, 5 }, { 5, 4, 129, 8 },
      { 2, 2, 5, 3, 2 } }) do
      local rows = { table.unpack(sizes) }
      for d = 3, #sizes - 1 do
        rows[d] = 1 -- of each of the first two dimensions its own
      end
      local x, scale = torch.randn(sizes), torch.randn(rows)
      local shift = torch.randn(1, table.unpack(rows, 2))
      for _, y in ipairs({ shift, shift:half() }) do
        assert.equal(1, instructions(function(a, b, c)
          return torch.relu(a * b + c)
        end, { x, scale, y }))
      end
    end
  end)
end)

describe("pointwise nodes of the host's graph", function()
  local HEAD = "graph differentiated host\n"
  local INPUTS = [[
    input %x: float32[2, 3]
    input %y: float32[3]
    origin
  ]]

  it("become a node where the last one stands, with what others read as results", function()
    graphs.becomes("chains", INPUTS .. [[
      %s = add(%x, %y, alpha=1)
      %m = sum(%x)
      %r = relu(%s)
      %p = mul(%r, %s)
      output %p, %r, %m]], INPUTS .. [[
      %m = sum(%x)
      %r, %p = chain([%x, %y], body={
        graph
        input %x: float32[2, 3]
        input %y: float32[3]
        origin
        %s = add(%x, %y, alpha=1)
        %r = relu(%s)
        %p = mul(%r, %s)
        output %r, %p
      })
      output %p, %r, %m]], HEAD)
  end)

  it("stay where a value between is read, or they are alone", function()
    graphs.stays("chains", INPUTS .. [[
      %a = relu(%x)
      %b = sum(%a)
      %c = mul(%a, %b)
      output %c]], HEAD)
    graphs.stays("chains", INPUTS .. [[
      %a = relu(%x)
      output %a]], HEAD)
  end)
end)
