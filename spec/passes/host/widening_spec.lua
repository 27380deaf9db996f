--- Which operators on halves become float32 ones in the host's graph: texts before and
--- after; and that chains which round on their way have the bits of eager calls.
local compiled = require("spec.support.compiled")
local graphs = require("spec.support.graphs")
local torch = require("torch")
local F = require("torch.nn.functional")

local HEAD = "graph differentiated host\n"
local INPUTS = [[
  input %x: float16[2, 8, 6, 6]
  input %w: float16[8, 8, 3, 3]
  input %b: float16[8, 1, 1]
  input %g: float16[2, 8, 4, 4]
  input %h: float16[2, 8, 2, 2]
]]
local WINDOW = "stride=[1, 1], padding=[0, 0, 0, 0], dilation=[1, 1], transposed=false, "
  .. "output_padding=[0, 0], groups=1"
local POOL = "kernel_size=[2, 2], stride=%s, padding=[0, 0], dilation=[1, 1], ceil_mode=false"

local function filled(text, stride)
  local pool = POOL:format(stride or "[2, 2]")
  return (text:gsub("WINDOW", WINDOW):gsub("POOL", pool):gsub("HALF", "dtype=float16")
    :gsub("WIDE", "dtype=float32"):gsub("BACKWARD", "origin backward"))
end

local function becomes(before, after, stride)
  graphs.becomes("widening", INPUTS .. filled(before, stride), INPUTS .. filled(after, stride),
    HEAD)
end

describe("a convolution of halves", function()
  it("reads and makes float32, its bias added before it is rounded", function()
    becomes([[
      %y = convolution_plus(%x, %w, %b, WINDOW)
      output %y]], [[
      %1 = cast(%x, WIDE)
      %2 = cast(%w, WIDE)
      %3 = convolution(%1, %2, WINDOW)
      %4 = add(%b, %3, alpha=1)
      %y = cast(%4, HALF)
      output %y]])
  end)

  it("shares what it reads with others of its half of the graph", function()
    becomes([[
      origin
      %y = convolution(%x, %w, WINDOW)
      %z = convolution(%x, %w, WINDOW)
      BACKWARD
      %d = convolution_backward_input(%g, %w, input_size=[2, 8, 6, 6], WINDOW)
      %e = convolution_backward_weight(%g, %x, weight_size=[8, 8, 3, 3], WINDOW)
      %s = sum(%g, dim=[0, 2, 3])
      output %y, %z, %d, %e, %s]], [[
      origin
      %1 = cast(%x, WIDE)
      %2 = cast(%w, WIDE)
      %3 = convolution(%1, %2, WINDOW)
      %y = cast(%3, HALF)
      %4 = convolution(%1, %2, WINDOW)
      %z = cast(%4, HALF)
      BACKWARD
      %5 = cast(%g, WIDE)
      %6 = cast(%w, WIDE)
      %7 = convolution_backward_input(%5, %6, input_size=[2, 8, 6, 6], WINDOW)
      %d = cast(%7, HALF)
      %8 = cast(%x, WIDE)
      %9 = convolution_backward_weight(%5, %8, weight_size=[8, 8, 3, 3], WINDOW)
      %e = cast(%9, HALF)
      %10 = sum(%5, dim=[0, 2, 3])
      %s = cast(%10, HALF)
      output %y, %z, %d, %e, %s]])
  end)

  it("pools what it makes in float32, and reads what is pooled as it is", function()
    becomes([[
      %y = convolution(%x, %w, WINDOW)
      %r = relu(%y)
      %p, %i = max_pool(%r, POOL)
      %q = convolution(%p, %w, WINDOW)
      output %i, %q]], [[
      %1 = cast(%x, WIDE)
      %2 = cast(%w, WIDE)
      %3 = convolution(%1, %2, WINDOW)
      %y = cast(%3, HALF)
      %r = relu(%y)
      %4 = cast(%r, WIDE)
      %5, %i = max_pool(%4, POOL)
      %6 = convolution(%5, %2, WINDOW)
      %q = cast(%6, HALF)
      output %i, %q]], "[1, 1]")
  end)

  for stride, rounds in pairs({ ["[2, 2]"] = false, ["[2, 1]"] = true }) do
    it("rounds gradients of windows that meet, alone: stride " .. stride, function()
      local size = rounds and "3" or "2"
      local between = rounds and "%q = cast(%4, HALF)\n%6 = cast(%q, WIDE)\n" or ""
      local function of(text)
        return (text:gsub("%%h", rounds and "%%k" or "%%h"):gsub("SIZE", size))
      end
      becomes(of([[
        input %k: float16[2, 8, 2, SIZE]
        %p, %i = max_pool(%g, POOL)
        %q = max_pool_backward(%h, %i, size=[4, 4])
        %d = convolution_backward_input(%q, %w, input_size=[2, 8, 6, 6], WINDOW)
        output %p, %d]]), of([[
        input %k: float16[2, 8, 2, SIZE]
        %p, %i = max_pool(%g, POOL)
        %3 = cast(%h, WIDE)
        %4 = max_pool_backward(%3, %i, size=[4, 4])
        ]] .. between .. [[
        %5 = cast(%w, WIDE)
        %7 = convolution_backward_input(]] .. (rounds and "%6" or "%4")
        .. [[, %5, input_size=[2, 8, 6, 6], WINDOW)
        %d = cast(%7, HALF)
        output %p, %d]]), stride)
    end)
  end

  it("rounds at its site, what is made exactly at none", function()
    becomes([[
      origin
      %p, %i = max_pool(%g, POOL)
      %y = convolution_plus(%x, %w, %b, WINDOW) site 5
      BACKWARD
      %q = max_pool_backward(%h, %i, size=[4, 4]) site 6
      %d = convolution_backward_input(%q, %w, input_size=[2, 8, 6, 6], WINDOW) site 7
      %s = sum(%q, dim=[0, 2, 3]) site 8
      output %p, %y, %d, %s]], [[
      origin
      %p, %i = max_pool(%g, POOL)
      %1 = cast(%x, WIDE)
      %2 = cast(%w, WIDE)
      %3 = convolution(%1, %2, WINDOW)
      %4 = add(%b, %3, alpha=1)
      %y = cast(%4, HALF) site 5
      BACKWARD
      %5 = cast(%h, WIDE)
      %6 = max_pool_backward(%5, %i, size=[4, 4])
      %7 = cast(%w, WIDE)
      %8 = convolution_backward_input(%6, %7, input_size=[2, 8, 6, 6], WINDOW)
      %d = cast(%8, HALF) site 7
      %9 = sum(%6, dim=[0, 2, 3])
      %s = cast(%9, HALF) site 8
      output %p, %y, %d, %s]])
  end)

  it("stays where its sums are of halves", function()
    graphs.stays("widening", INPUTS
      .. filled("%y = convolution(%x, %w, WINDOW) half_partials\noutput %y"), HEAD)
  end)
end)

describe("a chain that rounds on its way", function()
  -- Products of halves that float32 has exactly, so that the order of sums is no matter.
  local function whole(...)
    return torch.randint(-8, 9, { ... }):half() / 8
  end

  it("has the bits of its operators", function()
    local x, y = torch.randn(33, 70) * 3, torch.randn(70)
    for _, fn in ipairs({
      function(a, b)
        return (a + b):half():relu():float()
      end,
      function(a, b)
        local h = (a * b):half()
        return h:relu(), h:relu():float() + b, h:abs():float()
      end,
      function(a)
        return a:half():float(), a:bfloat16():float()
      end,
      function(a, b)
        return ((a:half() + b:half()):float() * a):bfloat16():neg():float():half()
      end,
    }) do
      for _, bias in ipairs({ y, torch.randn(33, 1), torch.randn(1) }) do
        local want = table.pack(fn(x, bias))
        local got = compiled.run(fn, { x, bias })
        for i, t in ipairs(want) do
          assert.is_true(compiled.same_bits(got[i], t), "result " .. i)
        end
      end
    end
  end)

  it("has them around convolutions", function()
    torch.manual_seed(3)
    local x, w, v = whole(2, 8, 9, 9), whole(16, 8, 3, 3), whole(8, 16, 2, 2)
    local b = whole(16)
    local function fn(a)
      local h = F.max_pool2d(F.relu(F.conv2d(a, w, b)), 2)
      return F.conv2d(h, v), h
    end
    local want = table.pack(fn(x))
    local got = compiled.run(fn, { x })
    for i, t in ipairs(want) do
      assert.is_true(compiled.same_bits(got[i], t), "result " .. i)
    end
  end)
end)
