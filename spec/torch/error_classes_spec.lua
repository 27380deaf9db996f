-- The classes of errors are PyTorch's (checked against 2.15), by category.
local helper = require("spec.helper")
local torch = require("torch")
local nn, F, data, D = torch.nn, torch.nn.functional, torch.utils.data, torch.distributions

local x = torch.ones({ 3, 4 })
local whole = torch.ones({ 2, 4 }, { dtype = torch.int64 })
local far = torch.tensor({ { 9 } })

-- category -> {class, calls}
local CASES = {
  ["a dtype that a kernel does not compute in"] = { "NotImplementedError", {
    function() whole:softmax(0) end,
    function() whole:log_softmax(0) end,
    function() F.layer_norm(whole, { 4 }) end,
    function() F.group_norm(whole, 2) end,
    function() F.mse_loss(whole, whole) end,
    function() F.smooth_l1_loss(whole, whole) end,
    function() F.cross_entropy(whole, torch.tensor({ 0, 1 })) end,
    function() F.binary_cross_entropy(whole, whole) end,
    function() F.glu(whole) end,
    function() F.adaptive_avg_pool2d(whole:view(1, 1, 2, 4), 2) end,
    function() F.interpolate(whole:view(1, 1, 2, 4), { size = 2 }) end,
    function() torch.mm(x:gt(0), x:gt(0).T) end,
    function() torch.bincount(x) end,
  } },
  ["an index of elements outside of the size"] = { "RuntimeError", {
    function() x:gather(0, far) end,
    function() x:scatter(0, far, 1.0) end,
    function() x:scatter_add(0, far, x) end,
  } },
  ["an index of rows outside of the size"] = { "IndexError", {
    function() return x[9] end,
    function() x:index_select(0, far[0]) end,
    function() x:index_copy(0, far[0], torch.ones({ 1, 4 })) end,
    function() torch.take(x, torch.tensor({ 99 })) end,
    function() F.embedding(far, x) end,
  } },
  ["a file that is not there"] = { "FileNotFoundError", {
    function() torch.load("/nonexistent/file") end,
  } },
  ["a negative size of a parameter"] = { "RuntimeError", {
    function() nn.Linear(-1, 2) end,
    function() nn.Embedding(-1, 2) end,
    function() nn.Conv2d(3, -4, 3) end,
  } },
  ["an argument too many"] = { "TypeError", {
    function() nn.Linear(1, 1):eval(1) end,
    function() nn.Linear(1, 1):children(1) end,
    function() nn.Linear(1, 1):float(1) end,
    function() nn.Linear(1, 1):train(true, 1) end,
    function() torch.optim.SGD(nn.Linear(1, 1):parameters(), 0.1):state_dict(1) end,
    function() torch.optim.SGD(nn.Linear(1, 1):parameters(), 0.1):step(nil, 1) end,
  } },
  ["a value of a wrong type"] = { "TypeError", {
    function() nn.Linear(1, 1):apply(3) end,
    function() nn.Linear(1, 1):requires_grad_("a") end,
    function() nn.utils.vector_to_parameters(3, nn.Linear(1, 1):parameters()) end,
    function() torch.optim.Adam(nn.Linear(1, 1):parameters(), { betas = { "a", 0.9 } }) end,
    function() data.DataLoader({ 1 }, { num_workers = "a" }) end,
    function() x:type(3) end,
  } },
  ["a value that is not allowed"] = { "ValueError", {
    function() nn.Linear(1, 1):train("a") end,
    function() x:type("foo") end,
    function() nn.Linear(1, 1):type("foo") end,
    function() data.RandomSampler({}) end,
    function() D.Normal("a", 1.0) end,
    function() D.Normal(0.0, 1.0):log_prob("a") end,
    function() nn.GaussianNLLLoss()(x, x, -x) end,
  } },
  ["a key that is missing"] = { "KeyError", {
    function() torch.optim.SGD({ { lr = 1 } }, 0.1) end,
    function() torch.optim.SGD(nn.Linear(1, 1):parameters(), 0.1):load_state_dict({}) end,
    function() data.default_collate({ { a = 1 }, { b = 1 } }) end,
  } },
  ["a range of random numbers"] = { "RuntimeError", {
    function() torch.normal(0.0, -1.0, { 2 }) end,
  } },
}

describe("the class of an error for", function()
  for category, case in pairs(CASES) do
    it(category, function()
      for _, f in ipairs(case[2]) do
        local ok, e = pcall(f)
        assert.is_false(ok)
        assert.equal(case[1], getmetatable(e) and getmetatable(e).__name or tostring(e))
      end
    end)
  end

  it("a type by its name is none", function()
    assert.equal(torch.float64, x:type("torch.DoubleTensor").dtype)
    helper.raises("ValueError", "'torch.FloatTensor', is allowed", function()
      x:type("FloatTensor")
    end)
  end)
end)
