--- PopTorch's tests/inputs_test.py. Tuples are lists, None is nil; a forward has no
-- defaults that a wrapper could know, so that a left-out tensor is another program.
describe("inputs_test", function()
  local class = require("lupine.base.class")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn
  local close = torch.testing.assert_close

  local function inference(forward, options)
    local Net = nn.Module:extend("Net")
    Net.forward = forward
    local net = Net()
    return poptorch.inferenceModel(net, options), net
  end

  local function t(value, dtype)
    return torch.tensor({ value }, { dtype = dtype })
  end

  local function add(_, pair)
    assert(#pair == 2 and torch.is_tensor(pair[1]) and torch.is_tensor(pair[2]))
    return pair[1] + pair[2]
  end

  local TYPES = { torch.float32, torch.float16 }

  it("test_simple_tuple", function()
    for _, dtype in ipairs(TYPES) do
      local model = inference(add)
      for _ = 1, 2 do
        assert.equal(3, model({ t(1.0, dtype), t(2.0, dtype) }):item())
      end
    end
  end)

  it("test_type_change", function()
    local model = inference(add)
    for _ = 1, 2 do
      assert.equal(3, model({ t(1.0), t(2.0) }):item())
    end
    local ints = { t(1, torch.int64), t(2, torch.int64) }
    local e = helper.raises("Error", model, ints)
    assert.matches("torch.float32, got torch.int64", e.message, 1, true)
    model:destroy()
    assert.equal(3, model(ints):item())
  end)

  it("test_shape_change", function()
    local model, net = inference(add)
    for _ = 1, 2 do
      assert.equal(3, model({ t(1.0), t(2.0) }):item())
    end
    local wider = { torch.tensor({ 1.0, 1.0 }), torch.tensor({ 2.0, 2.0 }) }
    local e = helper.raises("Error", model, wider)
    assert.matches("torch.Size([1]), got torch.Size([2])", e.message, 1, true)
    model:destroy()
    for _ = 1, 2 do
      close(model(wider), net(wider))
    end
  end)

  it("test_nested_tuples_and_lists", function()
    for _, dtype in ipairs({ torch.float64, torch.float16 }) do
      local other = dtype == torch.float64 and torch.float32 or dtype
      local model = inference(function(_, first, second, rest)
        local t3, pair = rest[1], rest[2]
        return first[1] + second + t3 + pair[1] + pair[2] + rest[3][1] + rest[3][2]
      end)
      local x = {}
      for i = 1, 7 do
        x[i] = t(i + 0.0, i % 3 == 1 and dtype or other)
      end
      for _ = 1, 2 do
        assert.equal(28, model({ x[1] }, x[2], { x[3], { x[4], x[5] }, { x[6], x[7] } }):item())
      end
    end
  end)

  it("test_optional_inputs", function()
    for _, dtype in ipairs(TYPES) do
      local function forward(_, t1, t2, t3, t4)
        return t1 * (t3 or torch.ones_like(t1)) + t2 * (t4 or torch.zeros_like(t1))
      end
      local t1, t2, t4 = t(1.0, dtype), t(2.0, dtype), t(4.0, dtype)
      assert.equal(1, inference(forward)(t1, t2):item())
      local model = inference(forward)
      assert.equal(9, model(t1, t2, { t4 = t4 }):item())
      assert.equal(9, model({ t4 = t4, t1 = t1, t2 = t2 }):item())
    end
  end)

  it("test_non_tensor_inputs_dispatch", function()
    local function forward(_, t1, scalar, other)
      scalar = scalar or 2
      return other and other * scalar + t1 * scalar or t1 * scalar
    end
    local t1, t2 = t(3.0), t(5.0)
    for _, arguments in ipairs({ { t1 }, { t1, 4 }, { t1, 4, t2 }, { t1, { other = t2 } } }) do
      local model, net = inference(forward)
      close(model(table.unpack(arguments)), net(table.unpack(arguments)))
    end
  end)

  it("test_list_inputs", function()
    for _, dtype in ipairs(TYPES) do
      local model = inference(function(_, t1, t2, x)
        local list = { t1, t2 }
        list[2] = list[1] + x
        return list
      end)
      for _ = 1, 4 do
        local list = model(t(1.0, dtype), t(2.0, dtype), t(4.0, dtype))
        assert.same({ 1, 5 }, { list[1]:item(), list[2]:item() })
      end
    end
  end)

  it("test_unused_tuple", function()
    local model = inference(function(_, x, y, _)
      return x + y
    end)
    for _ = 1, 2 do
      assert.equal(3, model(t(1.0), t(2.0), { t(1.0), t(1.0) }):item())
    end
  end)

  it("test_dict_input", function()
    local model = inference(function(_, d)
      return d.x / d.y
    end)
    assert.equal(0.5, model({ x = t(1.0), y = t(2.0) }):item())
    assert.equal(0.5, model({ y = t(2.0), x = t(1.0) }):item())
    assert.matches("Missing arguments: x.", helper.raises("Error", model, { y = t(2.0) }).message,
      1, true)
    assert.matches("Unexpected arguments: z.", helper.raises("Error", model,
      { x = t(1.0), y = t(2.0), z = t(3.0) }).message, 1, true)
  end)

  it("test_nested_dict_input", function()
    local model = inference(function(_, d)
      return d[1].d.x + d[1].d.y + d[2]
    end)
    for _ = 1, 2 do
      assert.equal(6, model({ { d = { x = t(1.0), y = t(2.0) } }, t(3.0) }):item())
    end
  end)

  it("test_ordered_dict_inputs", function()
    local model = inference(function(_, args)
      return args.a * 2 + args.b, args
    end)
    for _ = 1, 2 do
      local args = require("torch.nn.ordered").dict()
      args.b = torch.randn(2, 2)
      args.a = torch.randn(2, 2)
      local out, same = model(args)
      close(out, args.a * 2 + args.b)
      assert.matches("^OrderedDict%(%[%('b', .*%('a', ", tostring(same))
    end
  end)

  it("test_custom_input", function()
    local MyArg = class.new("MyArg")
    function MyArg:init(fields)
      for key, value in pairs(fields) do
        self[key] = value
      end
    end
    local function keys_of(struct)
      local keys = {}
      for key in pairs(struct) do
        keys[#keys + 1] = key
      end
      table.sort(keys)
      return keys
    end
    local Parser = poptorch.ICustomArgParser:extend("MyArgParser")
    function Parser.yieldTensors(_, struct)
      for _, key in ipairs(keys_of(struct)) do
        coroutine.yield(struct[key])
      end
    end
    function Parser.reconstruct(_, struct, next_tensor)
      local fields = {}
      for _, key in ipairs(keys_of(struct)) do
        fields[key] = next_tensor()
      end
      return MyArg(fields)
    end
    poptorch.registerCustomArgParser(MyArg, Parser())
    for _, iterations in ipairs({ 1, 3 }) do
      local model = inference(function(_, custom)
        assert(custom.tensor:size(0) == 2)
        custom.result = custom.tensor + custom.tensor
        return custom
      end, poptorch.Options():deviceIterations(iterations))
      for i = 0, 3 do
        local input = torch.full({ iterations * 2, 1 }, i)
        local out = model(MyArg({ tensor = input }))
        close(out.tensor, input:int())
        close(out.result, (input * 2):int())
      end
    end
    poptorch.registerCustomArgParser(MyArg, nil)
  end)

  -- x, and what of y, z and t is there.
  local Model = nn.Module:extend("Model")
  function Model.forward(_, x, y, z, u)
    local r = x
    r = y and (r + y) * 3 or r
    r = z and (r + z) * 4 or r
    r = u and (r + u) * 5 or r
    return r:tanh()
  end
  local Forwarding = Model:extend("Forwarding")
  function Forwarding:forward(...)
    return Model.forward(self, ...)
  end

  torch.manual_seed(42)
  local x, y, z, u = torch.randn(5, 5), torch.randn(5, 5), torch.randn(5, 5), torch.randn(5, 5)

  local function equal_to_host(cls, want, ...)
    local model = poptorch.inferenceModel(cls())
    for _ = 1, 2 do
      close(model(...), want)
    end
  end

  it("test_none_input_pass_one_kwarg", function()
    equal_to_host(Model, Model()(x, y, z), x, y, z, { u = torch.none })
  end)

  it("test_none_input_pass_two_kwarg", function()
    equal_to_host(Model, Model()(x, y), x, y, { z = torch.none, u = torch.none })
  end)

  it("test_none_input_pass_skip_one_kwarg", function()
    equal_to_host(Model, Model()(x, y), x, y, { z = torch.none })
  end)

  it("test_none_input_trace_dispatch_non_default_kwarg", function()
    equal_to_host(Model, Model()(x), x, { y = torch.none })
  end)

  it("test_none_input_pass_last_arg", function()
    equal_to_host(Model, Model()(x, y, z), x, y, z, nil)
  end)

  it("test_none_input_pass_two_arg", function()
    equal_to_host(Model, Model()(x, y), x, y, nil, nil)
  end)

  it("test_none_input_dispatch_non_default_arg_tuples", function()
    for _, cls in ipairs({ Model, Forwarding }) do
      equal_to_host(cls, Model()(x), x, nil, nil, nil)
      equal_to_host(cls, Model()(x), x)
      equal_to_host(cls, Model()(x, nil, z), x, nil, z)
    end
  end)

  it("test_none_input_dispatch_non_default_arg_dict", function()
    equal_to_host(Model, Model()(x, nil, nil, u), { x = x, u = u })
    equal_to_host(Model, Model()(x, nil, z), { z = z, x = x })
  end)

  it("test_custom_arg_parser", function()
    local MyArg = class.new("MyArg")
    function MyArg:init(a, b)
      self.a, self.b = a, b
    end
    local Parser = poptorch.ICustomArgParser:extend("MyParser")
    function Parser.yieldTensors(_, struct)
      return { struct.a, struct.b }
    end
    function Parser.reconstruct(_, _, next_tensor)
      return MyArg(next_tensor(), next_tensor())
    end
    poptorch.registerCustomArgParser(MyArg, Parser())
    for _, variadic in ipairs({ false, true }) do
      local function forward(_, args)
        return { sum = args.a + args.b, a = args.a }
      end
      local model = inference(variadic and function(...)
        return forward(...)
      end or forward)
      for _ = 1, 2 do
        local arg = MyArg(torch.randn(2, 2), torch.randn(2, 2))
        local out = model(arg)
        close(out.sum, arg.a + arg.b)
        close(out.a, arg.a)
      end
    end
    poptorch.registerCustomArgParser(MyArg, nil)
  end)

  it("test_none_input_dispatch_args_kwargs", function()
    local function forward(_, a, b, ...)
      local r = b * a
      for i, c in ipairs({ ... }) do
        r = r + (torch.is_tensor(c) and c * i or c.z * c.u)
      end
      return r
    end
    local model, net = inference(forward)
    local b, c, d, e = torch.randn(2, 2), torch.randn(2, 2), torch.randn(2, 2), torch.randn(2, 2)
    for _ = 1, 2 do
      close(model(2, b, c, d, { z = e, u = 3 }), net(2, b, c, d, { z = e, u = 3 }))
    end
    local function refused(text, ...)
      assert.matches(text, helper.raises("Error", model, ...).message, 1, true)
    end
    refused("Missing arguments: z.", 2, b, c, d, { u = 3 })
    refused("Unexpected arguments: x.", 2, b, c, d, { z = e, u = 3, x = e })
    refused("the value 3 was compiled in, got 5", 2, b, c, d, { z = e, u = 5 })
    refused("number of arguments: expected 5 as compiled, got 4", 2, b, c, { z = e, u = 3 })
    model:destroy()
    close(model(2, b), net(2, b))
    refused("number of arguments: expected 2 as compiled, got 1", 2)
    refused("a: the value 2 was compiled in, got 3", 3, b)
  end)

  it("test_no_inputs_no_output", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.x = torch.tensor({ 1.0 })
    end
    function Net:forward()
      self.x:add_(self.x)
    end
    local model = poptorch.inferenceModel(Net())
    assert.is_nil(model())
    assert.is_nil(model())
  end)

  it("test_return_and_use_input", function()
    local model = inference(function(_, input)
      local c = torch.tensor({ 1.0 })
      return c, input + c
    end)
    for _, value in ipairs({ 0.0, 1.0 }) do
      local c, sum = model(t(value))
      assert.same({ 1, value + 1 }, { c:item(), sum:item() })
    end
  end)

  it("test_return_and_use_nested_input", function()
    local model = inference(function(_, input)
      local c = poptorch.set_available_memory(torch.tensor({ 1.0 }), 0.1)
      return c, { c, input + c }
    end)
    for _, value in ipairs({ 0.0, 1.0 }) do
      local c, pair = model(t(value))
      assert.same({ 1, 1, value + 1 }, { c:item(), pair[1]:item(), pair[2]:item() })
    end
  end)

  it("test_scalar_tensor_input", function()
    local model = inference(function(_, v)
      return v * v
    end)
    local y2 = model(torch.tensor(3.0))
    assert.same({ 9, 0 }, { y2:item(), y2:dim() })
  end)

  it("test_returned_only_inputs", function()
    local model, net = inference(function(_, a, b, c)
      return a, b, c + 0.0
    end)
    for _, shift in ipairs({ 0, 10 }) do
      local given = { torch.tensor({ 1, 2 }) + shift, torch.tensor({ 3, 4 }) + shift,
        torch.tensor({ 1.2, 3.4 }) + shift }
      local out, want = { model(table.unpack(given)) }, { net(table.unpack(given)) }
      for i = 1, 3 do
        close(out[i], want[i]:to(out[i].dtype))
      end
    end
  end)

  it("test_returned_only_inputs_with_params", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.lin = nn.Linear(2, 1)
    end
    function Net:forward(c, a, b)
      return a, b, self.lin(c)
    end
    local net = Net()
    local a, b, c = torch.tensor({ 1, 2 }), torch.tensor({ 3, 4 }), torch.tensor({ 1.2, 3.4 })
    local out = { poptorch.inferenceModel(net)(c, a, b) }
    close(out[1], a:int())
    close(out[2], b:int())
    close(out[3], net.lin(c):detach())
  end)
end)
