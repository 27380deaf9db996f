-- Every common pass, and all of them, on random graphs: each output keeps
-- every bit. The values come from eager operators, one by one.
local core = require("lupine.core")
local graphs = require("spec.support.graphs")
local torch = require("torch")

local N = 100

local function inputs()
  return {
    torch.tensor({ { 1.5, -0.0, 0.0 }, { -2.25, 1e30, 0.1 } }),
    torch.tensor({ -0.0, 3.14, -7.5 }, { dtype = torch.float16 }),
    torch.tensor({ { true, false, true }, { false, false, true } }),
    torch.tensor(-3),
  }
end

local function check(seed, text, run)
  local g = core.graph_parse(text)
  g:verify()
  local want = graphs.evaluate(g, inputs())
  run(g)
  local got = graphs.evaluate(g, inputs())
  for i = 1, #want do
    if want[i] ~= got[i] then
      error(("graph %d, output %d:\n%s\nbecame\n%s\nin\n%s\n->\n%s"):format(seed, i,
        want[i], got[i], text, g:print()))
    end
  end
end

describe("the common passes", function()
  for _, name in ipairs(core.passes()) do
    it("keep every bit of the outputs: " .. name, function()
      for seed = 1, N do
        check(seed, graphs.random(seed, 24, seed % 2 == 0), function(g)
          g:run_pass(name)
        end)
      end
    end)
  end

  it("keep every bit of the outputs, one after the other", function()
    for seed = N + 1, 2 * N do
      local text = graphs.random(seed, 24, seed % 2 == 0)
      check(seed, text:gsub("^graph", "graph differentiated"), function(g)
        g:run_passes()
      end)
    end
  end)

  it("change nothing the second time", function()
    for seed = 1, 40 do
      local g = core.graph_parse(graphs.random(seed, 24))
      g:run_passes()
      local once = g:print()
      g:run_pass("dce")
      assert.equal(once, g:print())
      g:run_pass("cse")
      assert.equal(once, g:print())
    end
  end)
end)
