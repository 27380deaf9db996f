-- How many threads small work gets. What is counted are the threads that a
-- process of its own starts when the first operator needs them, beyond those
-- that it began with (an emulator's, say).
local program = require("spec.support.program")
local torch = require("torch")

describe("the width of an operator", function()
  local count = [[
    local function count()
      local n = 0
      for _ in io.popen("ls /proc/" .. io.open("/proc/self/stat"):read("n") .. "/task"):lines() do
        n = n + 1
      end
      return n
    end
    local before = count()
    ]]

  local function threads_after(code)
    local out, err = program.run({ "-e", count .. [[
      local torch, nn = require("torch"), require("torch.nn")
      torch.set_num_threads(2)
      local function train(batch, width)
        local model, x = nn.Linear(width, width), torch.ones(batch, width)
        local function loss(rows) return model(rows):sum() end
        require("lupine").compile(loss, { x })(x)
        loss(x):backward()
        require("torch.optim").SGD(model:parameters(), { lr = 0.01 }):step()
      end
      ]] .. code .. " print(1 + count() - before)" })
    return out ~= "" and tonumber(out) or err
  end

  it("is one where the work is small: no thread is started", function()
    assert.equal(1, threads_after("train(64, 64)"))
    assert.equal(1, threads_after("nn.Conv2d(3, 8, 3)(torch.ones(2, 3, 16, 16))"))
    assert.equal(1, threads_after("local x = torch.ones(2, 8, 16)"
      .. " nn.functional.scaled_dot_product_attention(x, x, x)"))
  end)

  it("is what was asked for where it is not", function()
    assert.equal(2, threads_after("train(256, 256)"))
    assert.equal(2, threads_after("nn.Conv2d(8, 16, 3)(torch.ones(8, 8, 32, 32))"))
  end)

  it("does not show in the bits of small work", function()
    local before = torch.get_num_threads()
    local results = {}
    for threads = 1, 3 do
      torch.set_num_threads(threads)
      torch.manual_seed(5)
      local x, w = torch.randn(64, 64), torch.randn(64, 64)
      results[threads] = torch.mm(x, w):add(torch.mm(x:t(), w))
    end
    torch.set_num_threads(before)
    assert.is_true(torch.equal(results[1], results[2]))
    assert.is_true(torch.equal(results[1], results[3]))
  end)
end)
