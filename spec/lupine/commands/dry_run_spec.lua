-- lupine run --dry-run: all that a run does, once, in a folder that goes again.
-- (Expectation 24.)
local core = require("lupine.core")
local files = require("spec.support.files")
local runs = require("spec.support.runs")

describe("a dry run", function()
  local folder

  setup(function()
    folder = runs.project()
    files.write(folder .. "/counted.lua", [[
      -- data that writes down which samples are asked for
      local torch = require("torch")
      local Counted = torch.utils.data.Dataset:extend("Counted")
      function Counted:init(name) self.name = name end
      function Counted:__len__() return 1000 end
      function Counted:__getitem__(i)
        local f <close> = io.open(self.name, "a")
        f:write(i, "\n")
        return torch.ones({ 3 }) * i, i % 2
      end
      return Counted]])
  end)
  teardown(function()
    files.remove(folder)
  end)

  local function lines_of(name)
    return select(2, files.read(folder .. "/" .. name):gsub("\n", ""))
  end

  it("trains two steps, validates a batch, and leaves nothing", function()
    local out, err, code = runs.lupine(folder, "run run.yaml --dry-run epochs=3 seed=1 "
      .. "data.train.class=counted.lua data.train.args='{name: train.txt}' "
      .. "data.validation.class=counted.lua data.validation.args='{name: validation.txt}'")
    assert.equal(0, code, err)
    assert.matches("a step .*: 375 of them take", out) -- ceil(1000 / 8) * 3
    assert.matches("model +26 parameters, 104 B\n", out)
    assert.matches("checkpoint +[%d.]+ KiB, read back and whole; 2 are kept", out)
    assert.matches("validation +a batch: loss [%d.]+\n", out)
    assert.matches("dry run: all is well\n$", out)
    assert.equal(16, lines_of("train.txt"))
    assert.equal(8, lines_of("validation.txt"))
    assert.is_false(core.is_folder(folder .. "/runs"))
  end)

  it("meets what the run would meet", function()
    for words, message in pairs({
      ["loss=MSELoss"] = "MSELoss", ["mode=poptorch on_nan=skip"] = "on_nan",
      ["weights=nope.safetensors"] = "nope.safetensors", ["epochs=0"] = "has no step",
      ["optimizer.args.lr=-1"] = "lr",
    }) do
      local _, err, code = runs.lupine(folder, "run run.yaml --dry-run " .. words)
      assert.is_true(code == 1 or code == 2, words)
      assert.matches(message, err, 1, true)
    end
  end)

  it("tells what the simulated system needs", function()
    local out, err, code = runs.lupine(folder, "run run.yaml --dry-run mode=poptorch "
      .. "options.deviceIterations=2")
    assert.equal(0, code, err)
    assert.matches("Memory Usage:", out, 1, true)
  end)
end)
