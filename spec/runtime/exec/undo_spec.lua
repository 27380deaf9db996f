--- Buffers that a step writes in parts, after a device iteration that is abandoned.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local torch = require("torch")

local ITERATIONS, REPLICAS, ACCUMULATION, ROWS, PICKED = 2, 2, 3, 40, 3

-- What is written a micro-batch: rows by index, over others and added; values are halved, so
-- that the order of the writes shows.
local WRITES = {
  rows = function(buffer, index, x)
    buffer:index_copy_(1, index, x)
  end,
  ["rows that are added to"] = function(buffer, index, x)
    buffer:index_add_(1, index, x)
  end,
  ["rows by negative index"] = function(buffer, index, x)
    buffer:index_put_({ torch.arange(2):view(2, 1), index - ROWS }, x)
  end,
  ["single elements"] = function(buffer, index, x)
    buffer:index_put_({ torch.arange(2):view(2, 1), index, torch.tensor(1) }, x:select(2, 0))
  end,
  ["rows twice"] = function(buffer, index, x)
    buffer:index_copy_(1, index, x)
    buffer:index_copy_(1, index + 1, buffer:index_select(1, index) / 2)
  end,
  ["rows and all"] = function(buffer, index, x)
    buffer:index_copy_(1, index, x)
    buffer:mul_(0.5)
  end,
}

for what, write in pairs(WRITES) do
  describe("a buffer of which a step writes " .. what, function()
    local exec, at, data, first, index, x

    before_each(function()
      torch.manual_seed(3)
      local n = ITERATIONS * ACCUMULATION * REPLICAS
      index = torch.randint(0, ROWS - 1, { n, PICKED })
      index:select(1, 1):copy_(index:select(1, 0)) -- some twice
      x = torch.randn(n, 2, PICKED, 2)
      first = torch.randn(2, ROWS, 2)
      local buffer = first:clone()
      local step = compiled.step(function(i, v)
        write(buffer, i, v)
        return buffer:sum()
      end, { torch.zeros({ PICKED }, { dtype = torch.int64 }), torch.empty(2, PICKED, 2) },
        { { "buffer", "buffer", buffer } })
      step:complete({ device_iterations = ITERATIONS, replicas = REPLICAS,
        gradient_accumulation = ACCUMULATION })
      at = compiled.vars(step)
      exec = step:compile({})
      exec:write(at["buffer buffer"], first)
      data = { [at["input x1"]] = index:flatten(0, 1), [at["input x2"]] = x:flatten(0, 1) }
    end)

    -- After `iterations` of the call, from `b` on; slices are [iteration][micro-batch][replica].
    local function expected(b, iterations, replica)
      b = b:clone()
      for i = 0, iterations * ACCUMULATION - 1 do
        local k = i * REPLICAS + replica
        write(b, index[k], x[k])
      end
      return b
    end

    it("is what it was before", function()
      local now = {}
      for r = 0, REPLICAS - 1 do
        now[r] = first
      end
      for _, share in ipairs({ 0, 0.2, 0.4, 0.6, 0.8, 1 }) do
        for iteration = 0, ITERATIONS - 1 do
          exec:trap(iteration, share)
          helper.refuses("RuntimeError", "a fault on demand", exec.run, exec, data, {})
          for r = 0, REPLICAS - 1 do
            now[r] = expected(now[r], iteration, r)
            helper.near(exec:read(at["buffer buffer"], r), now[r], 1e-6)
          end
        end
      end
      exec:trap(-1, 0)
      exec:run(data, {})
      for r = 0, REPLICAS - 1 do
        helper.near(exec:read(at["buffer buffer"], r), expected(now[r], ITERATIONS, r), 1e-6)
      end
    end)

    it("is what it was before an index that is out of range", function()
      index:view(-1)[-1] = 2 * ROWS + 7
      helper.refuses("IndexError", "out of bounds", exec.run, exec, data, {})
      for r = 0, REPLICAS - 1 do
        helper.near(exec:read(at["buffer buffer"], r), expected(first, ITERATIONS - 1, r), 1e-6)
      end
    end)
  end)
end
