-- torch.Tensor as a Lua value: making, reading, indexing, freeing.
local helper = require("spec.helper")
local torch = require("torch")
local near, raises = helper.near, helper.raises

describe("torch.tensor", function()
  it("takes the dtype from the numbers", function()
    assert.equal(torch.int64, torch.tensor({ 1, 2 }).dtype)
    assert.equal(torch.float32, torch.tensor({ 1.0, 2 }).dtype)
    assert.equal(torch.bool, torch.tensor({ true, false }).dtype)
    assert.equal(torch.float32, torch.tensor({}).dtype)
    assert.equal(torch.float64, torch.tensor(1, { dtype = torch.float64 }).dtype)
  end)

  it("keeps shape and values of nested lists", function()
    local x = torch.tensor({ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } })
    assert.same({ 2, 2, 2 }, { table.unpack(x.shape) })
    assert.same({ { { 1, 2 }, { 3, 4 } }, { { 5, 6 }, { 7, 8 } } }, x:tolist())
    assert.equal(3, torch.tensor(3):item())
    assert.same({ 2, 0 }, { table.unpack(torch.tensor({ {}, {} }).shape) })
  end)

  it("names the place where lists are ragged", function()
    raises("ValueError", "data%[2%] has 1 elements", function()
      torch.tensor({ { 1, 2 }, { 3 } })
    end)
    raises("ValueError", "data%[1%]%[2%] is a list", function()
      torch.tensor({ { 1, { 2 } } })
    end)
    raises("ValueError", "data%[2%] is int 3", function()
      torch.tensor({ { 1 }, 3 })
    end)
  end)

  it("refuses strings, also of digits, and unknown keywords", function()
    raises("TypeError", "data%[1%] is str '3'", function()
      torch.tensor({ "3" })
    end)
    raises("TypeError", "did you mean 'dtype'", function()
      torch.tensor({ 1 }, { dtpye = torch.int32 })
    end)
  end)

  it("takes bytes and gives them back", function()
    local x = torch.frombuffer(string.pack("<i4i4i4", 7, -8, 9), { dtype = torch.int32 })
    assert.same({ 7, -8, 9 }, x:tolist())
    assert.equal(string.pack("<i4i4i4", 7, -8, 9), x:tobytes())
    raises("ValueError", "no multiple of 4", function()
      torch.frombuffer("abc", { dtype = torch.int32 })
    end)
    raises("ValueError", "outside", function()
      torch.frombuffer("abc", { dtype = torch.uint8, offset = 4 })
    end)
  end)
end)

describe("indexing", function()
  local x
  before_each(function()
    x = torch.tensor({ { 0, 1, 2 }, { 10, 11, 12 }, { 20, 21, 22 } })
  end)

  it("counts from 0 and from the end", function()
    assert.same({ 0, 1, 2 }, x[0]:tolist())
    assert.same({ 20, 21, 22 }, x[-1]:tolist())
    assert.equal(12, x[1][2]:item())
  end)

  it("says so when an index is outside", function()
    raises("IndexError", "index 3 is out of range.*count from 0", function()
      return x[3]
    end)
    raises("IndexError", "index %-4", function()
      return x[-4]
    end)
    assert.has_error(function()
      for _ in ipairs(x) do end
    end)
  end)

  it("takes Python's text", function()
    assert.same({ { 0 }, { 10 } }, x["0:2, :1"]:tolist())
    assert.same({ 2, 12, 22 }, x["..., -1"]:tolist())
    assert.same({ { 0, 2 }, { 10, 12 }, { 20, 22 } }, x["..., ::2"]:tolist())
    assert.same({ 3, 1, 3 }, { table.unpack(x[":, None"].shape) })
    assert.equal(21, x["2, 1"]:item())
    assert.equal(21, x[" 2 ,-2 "]:item())
    raises("IndexError", "not understood", function()
      return x["0:2;"]
    end)
    raises("ValueError", "positive", function()
      return x["::-1"]
    end)
    raises("IndexError", "too many indices: 3", function()
      return x["0,0,0"]
    end)
  end)

  it("takes lists of items", function()
    assert.same({ { 1 }, { 11 } }, x[{ torch.slice(0, 2), torch.slice(1, 2) }]:tolist())
    local one = torch.tensor({ 1 }) -- is a position, as in Python
    assert.same({ { 1 }, { 11 } }, x[{ torch.slice(0, one + 1), torch.slice(one, 2) }]:tolist())
    for _, wrong in ipairs({ torch.tensor(1.0), torch.tensor({ 1, 2 }) }) do
      raises("TypeError", "a tensor of one integer or nil", function()
        return torch.slice(wrong)
      end)
    end
    assert.same({ 0, 10, 20 }, x[{ torch.ellipsis, 0 }]:tolist())
    assert.same({ 1, 3, 3 }, { table.unpack(x[{ torch.none, torch.ellipsis }].shape) })
  end)

  it("assigns through every kind of view", function()
    x[0] = 7
    x["1:, 0"] = torch.tensor({ 8, 9 })
    x[{ torch.ellipsis, -1 }] = -1
    assert.same({ { 7, 7, -1 }, { 8, 11, -1 }, { 9, 21, -1 } }, x:tolist())
    raises("TypeError", "the value is str", function()
      x[0] = "a"
    end)
  end)

  it("assigns values whose leading dimensions of one element are too many", function()
    x["0:1"] = torch.full({ 1, 1, 1, 3 }, 4.0)
    x[1] = torch.full({ 1, 1, 3 }, 5.0)
    x[torch.tensor({ 2, 2 })] = torch.full({ 1, 2, 3 }, 6.0)
    x[{ 0, 0 }] = torch.full({ 1, 1 }, 7.0)
    x[x:eq(5)] = torch.full({ 1, 1 }, 8.0)
    assert.same({ { 7, 4, 4 }, { 8, 8, 8 }, { 6, 6, 6 } }, x:tolist())
    local v = torch.ones(1, 1, 3, { requires_grad = true })
    local y = torch.zeros(2, 3)
    y[0] = v * 2
    y[torch.tensor({ 1, 1 })] = v * 3
    y:sum():backward()
    assert.is_true(v.grad.shape == { 1, 1, 3 } and v.grad:sum():item() > 0)
    raises("RuntimeError", "does not fit", function()
      x[0] = torch.ones(2, 1, 3)
    end)
    raises("RuntimeError", "cannot be broadcast", function()
      x[torch.tensor({ 0, 1 })] = torch.ones(2, 1, 3)
    end)
  end)

  it("takes tensors of integers and masks, beside other items", function()
    assert.same({ { 20, 21, 22 }, { 0, 1, 2 } }, x[torch.tensor({ 2, 0 })]:tolist())
    assert.same({ 12, 20, 21, 22 }, x[x:gt(11)]:tolist())
    assert.same({ 2, 10 }, x[{ torch.tensor({ 0, 1 }), torch.tensor({ 2, 0 }) }]:tolist())
    assert.same({ { 2, 0 }, { 12, 10 } }, x[{ torch.slice(0, 2), torch.tensor({ 2, 0 }) }]:tolist())
    assert.same({ { 0, 1, 2 } }, x[torch.tensor({ true, false, false })]:tolist())
    x[x:gt(11)] = -1
    x[{ torch.slice(0, 2), torch.tensor({ 0 }) }] = torch.tensor({ { 5.0 }, { 6.0 } })
    assert.same({ { 5, 1, 2 }, { 6, 11, -1 }, { -1, -1, -1 } }, x:tolist())
    raises("IndexError", "int64, int32 or bool, not float32", function()
      return x[torch.tensor({ 1.5 })]
    end)
  end)

  it("takes a mask without dimensions for a new one, of one element or none", function()
    local yes, no = torch.tensor(true), torch.tensor(false)
    assert.same({ x:tolist() }, x[yes]:tolist())
    assert.is_true(x[no].shape == { 0, 3, 3 })
    assert.same({ { 10, 11, 12 } }, x[{ 1, yes }]:tolist())
    assert.is_true(x[{ torch.slice(), yes }].shape == { 3, 1, 3 })
    assert.is_true(x[{ no, torch.slice(), 1 }].shape == { 0, 3 })
    x[no] = -1
    x[{ yes, 1 }] = torch.tensor({ 1.0, 2, 3 })
    assert.same({ { 0, 1, 2 }, { 1, 2, 3 }, { 20, 21, 22 } }, x:tolist())
    x[yes] = -1
    assert.same(-9, x:sum():item())
    for _, case in ipairs({ { yes, 0, 3 }, { no, 6, 0 } }) do
      local a = torch.tensor(2.0):requires_grad_()
      local v = torch.tensor(4.0):requires_grad_()
      local y = a * 2
      y[case[1]] = v;
      (y * 3 + v * 0):backward()
      assert.same({ case[2], case[3] }, { a.grad:item(), v.grad:item() })
    end
  end)

  it("loops from row 0", function()
    local seen = {}
    for i, row in pairs(x) do
      seen[#seen + 1] = i
      assert.equal(10 * i, row[0]:item())
    end
    assert.same({ 0, 1, 2 }, seen)
    seen = {}
    for row in x:iter() do
      seen[#seen + 1] = row[1]:item()
    end
    assert.same({ 1, 11, 21 }, seen)
  end)
end)

describe("a tensor's fields", function()
  it("are PyTorch's properties", function()
    local x = torch.tensor({ { 1.0, 2, 3 }, { 4, 5, 6 } })
    assert.is_true(x.shape == torch.Size({ 2, 3 }))
    assert.is_true(x.shape == { 2, 3 })
    assert.equal("torch.Size([2, 3])", tostring(x.shape))
    assert.equal(6, x.shape:numel())
    assert.equal(3, x:size(-1))
    assert.equal(2, x.ndim)
    assert.equal(2, #x)
    assert.equal(24, x.nbytes)
    assert.equal("device(type='cpu')", tostring(x.device))
    assert.same({ 3, 1 }, x:stride())
    near(x.T, { { 1, 4 }, { 2, 5 }, { 3, 6 } })
    near(x.mT, { { 1, 4 }, { 2, 5 }, { 3, 6 } })
    assert.is_false(x.T:is_contiguous())
    local y = torch.arange(24):reshape(2, 1, 3, 4)
    near(y.T, y:permute(3, 2, 1, 0)) -- PyTorch: deprecated, but all reversed
    near(torch.arange(3).T, { 0, 1, 2 })
    assert.equal("torch.FloatTensor", x:type())
  end)

  it("that do not exist are errors with the nearest name", function()
    local x = torch.tensor({ 1 })
    raises("AttributeError", "did you mean 'shape'", function()
      return x.shap
    end)
    raises("AttributeError", "cannot be assigned", function()
      x.shape = { 1 }
    end)
    raises("AttributeError", "did you mean 'tensor'", function()
      return torch.tensro
    end)
  end)

  it("data names the elements of another tensor", function()
    local x, y = torch.tensor({ 1.0 }), torch.tensor({ 2.0, 3.0 })
    x.data = y
    y[0] = 9
    assert.same({ 9, 3 }, x:tolist())
  end)
end)

describe("a tensor's life", function()
  it("ends with free() and with a scope; then it raises", function()
    local x = torch.tensor({ 1 })
    x:free()
    x:free()
    raises("TypeError", "closed Tensor", function()
      return x:size()
    end)
    local y = torch.tensor({ 1 })
    do
      local z <close> = y
      assert.equal(1, z:item())
    end
    raises("TypeError", "closed Tensor", function()
      return y[0]
    end)
  end)

  it("is told to the collector: garbage stays flat in both modes", function()
    for _, mode in ipairs({ "incremental", "generational" }) do
      local before = collectgarbage(mode)
      collectgarbage()
      local base, most = torch.memory().live, 0
      for _ = 1, 1000 do
        torch.full({ 1 << 17 }, 0.0)
        most = math.max(most, torch.memory().live)
      end
      collectgarbage(before)
      assert.is_true(most - base < 200 << 20)
    end
  end)
end)

describe("an object where data belong", function()
  it("is refused, a size is a list", function()
    local Point = require("lupine.base.class").new("Point")
    local plain = setmetatable({ 1, 2 }, { __index = {} })
    for _, value in ipairs({ Point(), plain, { Point() } }) do
      raises("TypeError", "tensor%(%): data.* is .*; numbers, booleans and lists", function()
        torch.tensor(value)
      end)
    end
    raises("TypeError", "data is Point;", function()
      torch.tensor(Point())
    end)
    helper.near(torch.tensor(torch.ones(2, 3).shape), { 2, 3 })
  end)
end)

describe("a warning", function()
  it("tells of reading the gradient of a tensor that keeps none", function()
    local script = 'local t = require("torch") local x = t.ones(1):requires_grad_(true) '
      .. "local y = x * 2 y:backward() local _ = x.grad %s _ = y.grad _ = y.grad"
    local function told(more)
      local pipe = assert(io.popen(("%s/lupine -e '%s' 2>&1"):format(
        require("spec.support.program").build, script:format(more))))
      local _, n = pipe:read("a"):gsub("%[lupine:warn%] grad of a tensor that is no leaf", "")
      pipe:close()
      return n
    end
    assert.equal(1, told(""))
    assert.equal(0, told("y = x * 2 y:retain_grad()"))
  end)
end)

describe("torch.Size", function()
  it("counts from 1 and from the end, and says so at 0", function()
    local shape = torch.zeros({ 2, 3, 4 }).shape
    assert.same({ 2, 4, 4, 2 }, { shape[1], shape[3], shape[-1], shape[-3] })
    assert.is_nil(shape[4])
    assert.equal(24, shape:numel())
    for i, position in pairs({ [0] = "0", [-4] = "%-4" }) do
      raises("IndexError", "position " .. position .. " of 3: sizes count from 1", function()
        return shape[i]
      end)
    end
  end)
end)
