-- Calls of operators: positional and keyword arguments, forms of one name,
-- in-place, out=, inplace=, metamethods; what is said when a call is wrong.
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")
local near, raises = helper.near, helper.raises

local x
before_each(function()
  x = torch.tensor({ { 1.0, 2 }, { 3, 4 } })
end)

describe("arguments", function()
  it("go by position, by name in a last table, or both", function()
    near(torch.sub(x, 1), { { 0, 1 }, { 2, 3 } })
    near(torch.sub(x, 1, { alpha = 2 }), { { -1, 0 }, { 1, 2 } })
    near(x:sub({ other = 1, alpha = 2 }), { { -1, 0 }, { 1, 2 } })
    near(torch.sub({ self = x, other = 1 }), { { 0, 1 }, { 2, 3 } })
    near(torch.sub({ input = x, other = 1 }), { { 0, 1 }, { 2, 3 } })
  end)

  it("may be nil or torch.none where there is a default", function()
    near(torch.clamp(x, nil, 2), { { 1, 2 }, { 2, 2 } })
    near(torch.clamp(x, torch.none, 2), { { 1, 2 }, { 2, 2 } })
    near(torch.clamp(x, { min = 3 }), { { 3, 3 }, { 3, 4 } })
  end)

  it("take loose integers where PyTorch does", function()
    assert.is_true(x:view(4, 1).shape == { 4, 1 })
    assert.is_true(x:view({ 4, 1 }).shape == { 4, 1 })
    assert.is_true(x:view(torch.Size({ 4, 1 })).shape == { 4, 1 })
    assert.is_true(x:view(-1).shape == { 4 })
    assert.is_true(x:expand(3, 2, 2).shape == { 3, 2, 2 })
    assert.is_true(x:permute(1, 0).shape == { 2, 2 })
  end)

  it("an empty table means no keywords, or an empty list where one fits", function()
    near(x:add(1, {}), { { 2, 3 }, { 4, 5 } })
    assert.is_true(torch.full({}, 3).shape == {})
    assert.is_true(torch.tensor(5):view({}).shape == {})
  end)

  it("numbers keep their kind", function()
    local i = torch.tensor({ 1, 2 })
    assert.equal(torch.int64, (i + 1).dtype)
    assert.equal(torch.float32, (i + 1.0).dtype)
    assert.equal(torch.int64, (i * true).dtype)
  end)
end)

describe("a wrong call", function()
  it("names function, argument and what was given, and lists the forms", function()
    local text = "add%(%): argument 'other' must be a Tensor or a number, not str '3'"
    local e = raises("TypeError", text, function()
      torch.add(x, "3")
    end)
    assert.truthy(e.message:find("add(Value self, Value other", 1, true))
    assert.equal("type_error", e.type)
    assert.truthy(e.location:find("forms_spec.lua:%d+$"))
  end)

  it("says which argument is missing, doubled or too many", function()
    raises("TypeError", "argument 'other' .* is missing", function()
      torch.add(x)
    end)
    raises("TypeError", "'self' .* is missing; the table is keywords, and none is called 'y'",
      function()
        torch.tanh({ z = 1, y = 2 })
      end)
    local _, e = pcall(torch.add, { other = 1 })
    assert.matches("'self' .a Tensor or a number. is missing\n", e.message)
    raises("TypeError", "'other' is given by position and by name", function()
      x:add(1, { other = 2 })
    end)
    raises("TypeError", "takes 2 positional arguments, but 3 were given", function()
      torch.add(x, 1, 2)
    end)
  end)

  it("suggests the nearest keyword and refuses mixes", function()
    raises("TypeError", "unexpected keyword argument 'alhpa'; did you mean 'alpha'", function()
      x:add(1, { alhpa = 2 })
    end)
    raises("TypeError", "mixes list elements and keywords", function()
      x:add(1, { 2, alpha = 2 })
    end)
  end)

  it("points at the element of a list", function()
    raises("TypeError", "element 2 is str 'a'", function()
      x:split({ 1, "a" })
    end)
    raises("TypeError", "'size' must be an int or a list of ints, not float 2.0", function()
      x:view(2.0, 2)
    end)
  end)
end)

describe("forms of one name", function()
  it("are chosen by their arguments", function()
    assert.equal(2, #x:split(1))
    assert.is_true(x:split({ 2 })[1].shape == { 2, 2 })
  end)

  it("give a list, several values or one tensor", function()
    local rows = x:unbind()
    assert.equal("table", type(rows))
    near(rows[2], { 3, 4 })
  end)
end)

describe("results", function()
  it("in-place names change and return the receiver", function()
    local y = x:add_(1)
    assert.is_true(rawequal(x, y))
    near(x, { { 2, 3 }, { 4, 5 } })
  end)

  it("out= takes the result", function()
    local out = torch.tensor({ { 0.0, 0 }, { 0, 0 } })
    local y = torch.add(x, x, { out = out })
    assert.is_true(y == out)
    near(out, { { 2, 4 }, { 6, 8 } })
    raises("TypeError", "'out'", function()
      torch.add(x, x, { out = 3 })
    end)
  end)

  it("inplace of torch.nn.functional goes by name and by position", function()
    local y = torch.tensor({ -1.0, 2 })
    assert.is_true(rawequal(F.relu(y, { inplace = true }), y))
    near(y, { 0, 2 })
    local z = torch.tensor({ -1.0, 2 })
    assert.is_true(rawequal(F.relu(z, true), z))
    near(F.relu(x, false), x)
    raises("TypeError", "inplace", function()
      F.gelu(x, { inplace = true })
    end)
  end)

  -- PyTorch 2.15: inspect.signature of the functions of torch.nn.functional,
  -- the schemas of the others (in place: NAME_; trunc_normal_: of nn.init)
  it("inplace, generator and device are keywords where PyTorch has them", function()
    local want = {
      overwrites = "celu dropout dropout1d dropout2d dropout3d elu hardsigmoid hardswish hardtanh "
        .. "leaky_relu mish relu relu6 selu silu threshold",
      draws = "_standard_gamma bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ "
        .. "log_normal_ multinomial normal normal_ poisson rand rand_like randint randint_like "
        .. "randn randn_like random_ randperm trunc_normal_ uniform_",
      makes = "arange empty empty_like eye full full_like linspace logspace new_empty new_full "
        .. "new_ones new_zeros normal ones ones_like rand rand_like randint randint_like randn "
        .. "randn_like randperm scalar_tensor tril_indices triu_indices zeros zeros_like",
    }
    for keyword, names in pairs(want) do
      local seen, list = {}, {}
      for _, form in ipairs(core.form_list()) do
        local over = form.inplace and not form["function"]
        local name = over and form.name .. "_" or form.name
        if form[keyword] and not seen[name] then
          seen[name] = true
          list[#list + 1] = name
        end
      end
      table.sort(list)
      assert.equal(names, table.concat(list, " "))
    end
    raises("TypeError", "generator", function()
      torch.dropout(x, 0.5, true, { generator = torch.Generator() })
    end)
  end)

  it("device and requires_grad belong to functions that make tensors", function()
    local y = torch.full({ 2 }, 1.0, { requires_grad = true, dtype = torch.float64 })
    assert.is_true(y.requires_grad)
    assert.is_true(torch.full({ 2, 3 }, 1.0, { device = "meta" }).is_meta)
    raises("RuntimeError", "poptorch moves", function()
      torch.full({ 2 }, 1.0, { device = "ipu" })
    end)
  end)
end)

describe("operators of Lua", function()
  it("take tensors and numbers on either side", function()
    near(x + x, { { 2, 4 }, { 6, 8 } })
    near(1 - x, { { 0, -1 }, { -2, -3 } })
    near(2 ^ x, { { 2, 4 }, { 8, 16 } })
    near(x // 2, { { 0, 1 }, { 1, 2 } })
    near(x % 2, { { 1, 0 }, { 1, 0 } })
    near(6 / x, { { 6, 3 }, { 2, 1.5 } })
    near(-x ^ 2, { { -1, -4 }, { -9, -16 } })
    raises("TypeError", "an operand is str '1'", function()
      return x + "1"
    end)
  end)

  it("compare by identity; order is refused with the way to write it", function()
    local grad_of = torch.tensor({ 1.0 })
    grad_of.grad = torch.tensor({ 2.0 })
    assert.is_true(grad_of.grad == grad_of.grad)
    assert.is_false(x == x:clone())
    raises("TypeError", "a:lt%(b%)", function()
      return x < x
    end)
  end)

  it("writes into out= only what its type may hold", function()
    local v, double = torch.ones(2), torch.empty(2, { dtype = torch.float64 })
    helper.near(torch.add(v, 1, { out = double }), { 2, 2 })
    helper.near(torch.sum(torch.ones(2, 2), 0, { out = double }), { 2, 2 })
    helper.raises("RuntimeError", "can't be cast to the desired output type int64", function()
      torch.add(v, 1, { out = torch.empty(2, { dtype = torch.int64 }) })
    end)
    for _, call in ipairs({
      function(out) torch.mm(torch.ones(2, 2), torch.ones(2, 2), { out = out }) end,
      function(out) torch.floor(v, { out = out }) end,
      function(out) torch.amax(torch.ones(2, 2), 0, { out = out }) end,
      function(out) torch.index_select(v, 0, torch.tensor({ 0 }), { out = out }) end,
    }) do
      helper.raises("RuntimeError", "Expected out tensor to have dtype float32, but got float64",
        function()
          call(double)
        end)
    end
  end)

  it("writes into out= that shares no part with what is read", function()
    local v = torch.arange(6.0)
    helper.raises("RuntimeError", "refer to a single memory location", function()
      torch.add(v["0:4"], 1, { out = v["1:5"] })
    end)
    local m = torch.arange(4.0):reshape(2, 2)
    helper.raises("RuntimeError", "refer to a single memory location", function()
      torch.add(m:t(), 1, { out = m })
    end)
    helper.raises("RuntimeError", "several elements in one place", function()
      torch.add(torch.ones(3), 1, { out = torch.zeros(1):expand(3) })
    end)
    helper.near(torch.add(v["0:3"], 1, { out = v["3:6"] }), { 1, 2, 3 })
    helper.near(torch.add(v, 1, { out = v }), { 1, 2, 3, 2, 3, 4 })
    helper.near(torch.mm(m, m, { out = m }), { { 2, 3 }, { 6, 11 } })
  end)
end)

describe("a dimension out of range", function()
  it("is said of the called function and its argument", function()
    for _, name in ipairs({ "sum", "mean", "prod", "amax", "argmin", "all", "var", "logsumexp",
      "softmax", "cumsum", "sort", "topk", "kthvalue", "unbind", "unsqueeze", "squeeze", "select",
      "max", "median" }) do
      local args = ({ topk = { 1 }, kthvalue = { 1 }, select = {} })[name] or {}
      args[#args + 1] = 7
      args[#args + 1] = name == "select" and 0 or nil
      raises("IndexError", "^" .. name .. "%(%): argument 'dim': dimension out of range: "
        .. "expected one in %[%-%d, %d%], got 7$", function()
        torch[name](x, table.unpack(args))
      end)
    end
    raises("IndexError", "^cat%(%): argument 'dim': .*got %-3$", function()
      torch.cat({ x, x }, -3)
    end)
    raises("IndexError", "^transpose%(%): dimension out of range", function()
      x:transpose(0, 2)
    end)
  end)
end)

describe("a wrong argument", function()
  local q = torch.randn(2, 3, 4)

  it("that no form names is described, and listed with the forms", function()
    raises("TypeError", "argument 'generator' %(by name%) must be a torch.Generator, not int 5\n"
      .. ".*randn%(.*, bool requires_grad=False, Device%? device=None, "
      .. "Generator%? generator=None%)",
      function() torch.randn(2, { generator = 5 }) end)
    raises("TypeError", "did you mean 'inplace'%?\nAllowed:\n  relu%(Tensor self, %*, "
      .. "bool inplace=False%) %-> Tensor", function() F.relu(q, { inplase = true }) end)
  end)

  it("is told by the function that was called", function()
    local at = torch.tensor({ 5 })
    raises("IndexError", "^index_add: index 5 is out of bounds", function()
      torch.ones(2, 2):index_add_(0, at, torch.ones(1, 2))
    end)
    raises("ValueError", "^cross_entropy: expected an input", function()
      F.cross_entropy(torch.ones(2, 3), torch.zeros(3, { dtype = torch.int64 }))
    end)
    raises("RuntimeError", "^gather: ", function() torch.ones(2):gather(0, at) end)
  end)

  it("is named where it is a nil among sizes", function()
    raises("TypeError", "positional argument 2 of 2 is nil", function()
      torch.randn(4, nil)
    end)
  end)
end)

describe("NumPy's names", function()
  local rows = torch.arange(6.0):reshape(2, 3)

  it("of dim and keepdim are taken", function()
    helper.near(rows:sum({ axis = 1 }), { 3, 12 })
    assert.same({ 2, 1 }, { table.unpack(rows:sum({ axis = 1, keepdims = true }).shape) })
    assert.same({ 2, 6 }, { table.unpack(torch.cat({ rows, rows }, { axis = 1 }).shape) })
    raises("TypeError", "unexpected keyword argument 'axis'", function()
      rows:sum({ dim = 0, axis = 1 })
    end)
  end)
end)

describe("an element of a wrong type", function()
  local ones = torch.ones({ 2, 3 })
  it("is named in a list, in a tensor given for one, and under NumPy's name", function()
    raises("TypeError", "argument 'dim' .* but element 2 is str 'a'", function()
      torch.sum(ones, { axis = { 0, "a" } })
    end)
    raises("TypeError", "argument 'dim' %(by name%) .* not str 'a'", function()
      torch.sum(ones, { axis = "a" })
    end)
    raises("TypeError", "argument 'size' .* but element 1 is float 1.5", function()
      torch.ones(torch.tensor({ 1.5, 2 }))
    end)
    raises("TypeError", "argument 'dim' .* but element 1 is float 0.5", function()
      torch.var(ones, torch.tensor({ 0.5, 1 }), torch.tensor({ 1.0 }))
    end)
  end)
  it("is none where tensors are joined", function()
    for _, name in ipairs({ "cat", "vstack", "column_stack", "meshgrid", "block_diag",
      "broadcast_tensors", "cartesian_prod" }) do
      raises("TypeError", "but element 2 is torch.none", function()
        torch[name]({ ones, torch.none })
      end)
      raises("TypeError", "must be a list of Tensors", function()
        torch[name](ones, torch.none)
      end)
    end
  end)
end)
