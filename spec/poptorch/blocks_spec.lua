describe("blocks", function()
  local blocks = require("poptorch.blocks")
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local Block = poptorch.Block

  it("tell the tracer where they start and end", function()
    local log = helper.trace(function()
      do
        local _ <close> = Block("A", { ipu_id = 0 })
      end
      local a, b = Block("B", 1, function()
        return 1, nil
      end)
      assert.equal(1, a)
      assert.is_nil(b)
      Block({ user_id = "C" }, function() end)
      Block.start("D", 3)
    end)
    assert.same({ "A@0", "end", "B@1", "end", "C@nil", "end", "D@3" }, log)
  end)

  it("take {} for no keywords", function()
    local torch = require("torch")
    local m = torch.nn.Linear(2, 2)
    assert.equal(m, poptorch.BeginBlock(m, {}))
    assert.same({ "0@nil", "end" }, helper.trace(function()
      Block.useAutoId()
      Block({}, function() end)
    end))
  end)

  it("end when the scope raises", function()
    local log = helper.trace(function()
      local ok, e = pcall(Block, "A", function()
        error("inside", 0)
      end)
      assert.same({ false, "inside" }, { ok, e })
    end)
    assert.same({ "A@nil", "end" }, log)
  end)

  it("without an id are numbered from useAutoId on", function()
    local function forward()
      Block.useAutoId()
      Block({ ipu_id = 0 }, function() end)
      Block("special", function() end)
      Block(function() end)
    end
    local want = { "0@0", "end", "special@nil", "end", "1@nil", "end" }
    assert.same(want, helper.trace(forward))
    assert.same(want, helper.trace(forward))
    assert.same({ "2@nil" }, helper.trace(function()
      Block.start()
    end))
  end)

  it("do nothing outside a trace", function()
    local before = helper.trace(function()
      Block.useAutoId()
    end)
    assert.same({}, before)
    Block(function() end)
    Block.start("A")
    assert.equal(3, poptorch.BlockFunction("A")(function(x)
      return x + 1
    end)(2))
    assert.same({ "0@nil" }, helper.trace(Block.start))
  end)

  it("survive a trace that was abandoned inside them", function()
    local scope
    helper.trace(function()
      scope = Block("A")
    end)
    local log = helper.trace(function()
      local _ <close> = scope
    end)
    assert.same({}, log)
  end)

  it("refuse ids of a wrong kind", function()
    helper.raises("AssertionError", Block, 1.5)
    helper.raises("AssertionError", Block, "A", "0")
    helper.raises("AssertionError", Block, "A", -1)
    helper.raises("TypeError", Block, "A", { ipu = 1 })
  end)

  it("BlockFunction puts a function into a block", function()
    local f = poptorch.BlockFunction({ user_id = "F", ipu_id = 1 })(function(self, x)
      return self.a, x
    end)
    local log = helper.trace(function()
      local a, x = f({ a = 1 }, 2)
      assert.same({ 1, 2 }, { a, x })
    end)
    assert.same({ "F@1", "end" }, log)
    helper.raises("TypeError", poptorch.BlockFunction("A"), 3)
  end)

  it("BeginBlock annotates a module, which stays the same object", function()
    local module = helper.module(function(x)
      return x
    end)
    assert.equal(module, poptorch.BeginBlock(module, "A", { ipu_id = 2 }))
    assert.equal(7, module(7))
    assert.same({ "A@2" }, helper.trace(module))
    helper.raises("Error", poptorch.BeginBlock, module)
    assert.same({ "A@2" }, helper.trace(module))
  end)

  it("an id may be an integer, as range gives it", function()
    local module = helper.module()
    poptorch.BeginBlock(module, 3, 1)
    assert.same({ "3@1" }, helper.trace(module))
    local decorated = poptorch.BlockFunction(0, { ipu_id = 2 })(function() end)
    assert.same({ "0@2", "end" }, helper.trace(decorated))
    assert.equal("Block(user_id=7, ipu_id=1)", tostring(poptorch.Block(7, 1)))
    helper.raises("AssertionError", poptorch.Block, 1.5)
  end)

  it("hooks registered before run outside the block", function()
    local module = helper.module()
    local order = {}
    local function hook(name)
      return function()
        order[#order + 1] = name
      end
    end
    module:register_forward_pre_hook(hook("before"))
    poptorch.BeginBlock(module, "A")
    module:register_forward_pre_hook(hook("after"))
    blocks.tracer = { set_block = hook("block"), end_block = hook("end") }
    module()
    blocks.tracer = nil
    assert.same({ "before", "block", "after" }, order)
  end)

  it("BeginBlock wraps a function and refuses what can not be called", function()
    local f = poptorch.BeginBlock(function(x)
      return x * 2
    end, "F", 1)
    assert.same({ "F@1" }, helper.trace(function()
      assert.equal(6, f(3))
    end))
    assert.equal("BeginBlock(user_id=F, ipu_id=1)", tostring(f))
    assert.equal("BeginBlock(user_id=None, ipu_id=None)", tostring(poptorch.BeginBlock(print)))
    local callable = setmetatable({}, { __call = function(_, x)
      return x + 1
    end })
    assert.same({ "G@nil" }, helper.trace(function()
      assert.equal(4, poptorch.BeginBlock(callable, "G")(3))
    end))
    for _, class in ipairs({ require("torch").nn.ReLU, poptorch.Options }) do
      helper.raises("Error", poptorch.BeginBlock, class)
    end
    helper.raises("Error", poptorch.BeginBlock, 3)
    helper.raises("Error", poptorch.BeginBlock, {})
    helper.raises("Error", poptorch.BeginBlock, nil)
  end)

  it("removeBlocks takes annotations away, also of sub-modules", function()
    local child = helper.module()
    local module = helper.module(nil, { helper.module(nil, { child }) })
    poptorch.BeginBlock(child, "A")
    poptorch.removeBlocks(module)
    assert.same({}, helper.trace(child))
    assert.same({}, child.hooks)
    poptorch.BeginBlock(child, "B")
    assert.same({ "B@nil" }, helper.trace(child))
    helper.raises("AssertionError", poptorch.removeBlocks, 3)
    helper.raises("AssertionError", poptorch.removeBlocks, {})
  end)
end)
