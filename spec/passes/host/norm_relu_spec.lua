--- Which normalisations of the host's graph run with their ReLU: texts before
--- and after. Images of 2 samples and 3 channels.
local graphs = require("spec.support.graphs")

local HEAD = "graph differentiated host\n"
local INPUTS = [[
  input %x: float32[2, 3, 4, 5]
  input %z: float32[2, 3, 4, 5]
  input %w: float32[3]
]]
local NORM = "%y, %m, %v = batch_norm_train(%x, %w, _, eps=0.5)\n"

local function becomes(before, after)
  graphs.becomes("norm_relu", INPUTS .. before, INPUTS .. after, HEAD)
end

local function stays(text)
  graphs.stays("norm_relu", INPUTS .. text, HEAD)
end

describe("a normalisation", function()
  it("runs with its ReLU, where it stands", function()
    becomes(NORM .. [[
      %a = neg(%m)
      %r = relu(%y)
      output %r, %a, %v]], [[
      %r, %m, %v = batch_norm_relu(%x, %w, _, _, eps=0.5)
      %a = neg(%m)
      output %r, %a, %v]])
  end)

  it("adds what is there before its ReLU", function()
    for _, operands in ipairs({ "%y, %z", "%z, %y" }) do
      becomes(NORM .. "%s = add(" .. operands .. [[, alpha=1)
        %r = relu(%s)
        output %r]], [[
        %r, %m, %v = batch_norm_relu(%x, %w, _, %z, eps=0.5)
        output %r]])
    end
  end)

  it("adds the ReLU of another", function()
    becomes(NORM .. [[
      %q = relu(%y)
      %t, %n, %u = batch_norm_train(%z, %w, _, eps=0.5)
      %s = add(%q, %t, alpha=1)
      %r = relu(%s)
      output %r]], [[
      %q, %m, %v = batch_norm_relu(%x, %w, _, _, eps=0.5)
      %r, %n, %u = batch_norm_relu(%z, %w, _, %q, eps=0.5)
      output %r]])
  end)

  it("keeps a result that somebody else reads", function()
    stays(NORM .. "%r = relu(%y)\noutput %r, %y")
    stays(NORM .. "%s = add(%y, %z, alpha=1)\n%r = relu(%s)\noutput %r, %s")
    stays(NORM .. "%s = add(%y, %y, alpha=1)\n%r = relu(%s)\noutput %r")
  end)

  it("adds no multiple, nothing of another shape or that is made later", function()
    stays(NORM .. "%s = add(%y, %z, alpha=2)\n%r = relu(%s)\noutput %r")
    stays(NORM .. "%s = add(%y, 1.5, alpha=1)\n%r = relu(%s)\noutput %r")
    stays(NORM .. "%l = neg(%z)\n%s = add(%y, %l, alpha=1)\n%r = relu(%s)\noutput %r")
    stays("input %c: float32[3, 1, 1]\n" .. NORM
      .. "%s = add(%y, %c, alpha=1)\n%r = relu(%s)\noutput %r")
  end)

  it("of halves stays, which would be rounded less often", function()
    local text = (INPUTS .. NORM .. "%r = relu(%y)\noutput %r")
    graphs.stays("norm_relu", (text:gsub("float32%[2", "float16[2")), HEAD)
  end)
end)

describe("the gradient of a normalisation", function()
  local BACK = "%dx, %dw, %db = batch_norm_backward(%d, %x, %w, %w, %w, eps=0.5)\n"
  local READ = "input %r: float32[2, 3, 4, 5]\n"
  local RELU = "%d = relu_backward(%g, %r)\n"

  it("runs with the ReLU's", function()
    becomes(READ .. "%g = softmax(%z, dim=1)\n" .. RELU .. [[
      %a = neg(%g)
      ]] .. BACK .. "output %dx, %db, %a", READ .. [[
      %g = softmax(%z, dim=1)
      %a = neg(%g)
      %dx, %dw, %db = batch_norm_relu_backward(%g, %x, %w, %w, %w, %r, eps=0.5)
      output %dx, %db, %a]])
  end)

  it("leaves it to a sum just before", function()
    stays(READ .. "%g = add(%z, %x, alpha=1)\n" .. RELU .. BACK .. "output %dx")
  end)

  it("keeps the ReLU's where somebody else reads that", function()
    stays(READ .. "%g = softmax(%z, dim=1)\n" .. RELU .. BACK .. "output %dx, %d")
  end)
end)
