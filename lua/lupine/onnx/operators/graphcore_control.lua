--- Operators of the domain ai.graphcore that run graphs or act beside what they compute.
--- source: PopART, builder.hpp (AiGraphcoreOpset1) and willow/src/op
local torch = require("torch")
local core = require("lupine.core")
local sequences = require("lupine.onnx.sequences")

local internal = core.forms.internal

local FORMATS = { [0] = "auto", "fixed", "scientific", "none" }

local function print_tensor(n, x)
  local a = n.attr
  return internal.print_tensor(x, {
    title = a.title ~= "" and a.title or n.plan.inputs[1],
    print_gradient = a.print_gradient ~= 0,
    summarise_threshold = a.summariseThreshold, edge_items = a.edgeItems,
    max_line_width = a.maxLineWidth, digits = a.digits,
    float_format = n:check(FORMATS[a.floatFormat], "attribute 'floatFormat': got %d. Allowed: 0 "
      .. "(Auto), 1 (Fixed), 2 (Scientific), 3 (None)", a.floatFormat),
    separator = utf8.char(a.separator), open_bracket = utf8.char(a.openBracket),
    close_bracket = utf8.char(a.closeBracket),
  })
end

-- Data, offsets and lengths of each input, then offsets and lengths of the result.
local function packed(n, ...)
  local given = { ... }
  local a, count = n.attr, (#given - 2) // 3
  n:check(#given >= 5 and (#given - 2) % 3 == 0, "it takes data, offsets and lengths of each "
    .. "input, then offsets and lengths of the result, got %d inputs", #given)
  n:check(#a.maxSequenceLengths == count, "attribute 'maxSequenceLengths': expected %d, got %d",
    count, #a.maxSequenceLengths)
  local total, each, inputs = given[2]:numel(), a.callbackBatchSize, {}
  n:check(each > 0 and total % each == 0, "attribute 'callbackBatchSize': %d does not divide %d "
    .. "sequences", each, total)
  for i = 1, count do
    inputs[i] = sequences.unpack(given[3 * i - 2], given[3 * i - 1], given[3 * i],
      a.maxSequenceLengths[i])
  end
  local body, results = n:body("callback"), {}
  for first = 0, total - 1, each do
    local args = {}
    for i, t in ipairs(inputs) do
      args[i] = t:narrow(0, first, each)
    end
    results[#results + 1] = (body(table.unpack(args)))
  end
  return sequences.pack(torch.cat(results, 0), given[#given - 1], given[#given], a.resultSize)
end

local function bodies(op)
  -- types of inputs are those of the call's, whatever the callee's graph says of its own
  op("Call(inputs...?; callee: graph!, num_outputs: int, modifiedInputs: ints) -> (outputs...)", 1,
    function(n, ...)
      local callee = n:graph("callee")
      n:check(select("#", ...) == #callee.input and #n.outputs <= #callee.output, "the callee has "
        .. "%d inputs and %d outputs, the call %d and %d", #callee.input, #callee.output,
        select("#", ...), #n.outputs)
      for i = 1, #callee.input do
        n:check(n.inputs[i], "input %d is left out", i - 1)
      end
      return n:body("callee")(...)
    end, { calls = "callee" })
  op("PackedDataBlock(inputs...; maxSequenceLengths: ints!, resultSize: int!, "
    .. "callbackBatchSize: int!, callback: graph!) -> (output)", 1, packed)
end

local function effects(op)
  op("PrintTensor(X; print_gradient: int = 1, title: string = '', "
    .. "summariseThreshold: int = 1000, edgeItems: int = 3, maxLineWidth: int = 75, "
    .. "digits: int = 8, floatFormat: int = 0, separator: int = 32, openBracket: int = 91, "
    .. "closeBracket: int = 93) -> (Y)", 1, print_tensor, { effect = true })
  op("Abort(condition?) -> ()", 1, function(n, condition)
    internal.abort_if(condition or torch.ones({}, { device = n.infers and "meta" or "cpu" }))
  end, { effect = true })
  op("CopyVarUpdate(X, Updater) -> (Y)", 1, function(n, x, updater)
    n:check(tostring(x.shape) == tostring(updater.shape), "a variable of the shape %s cannot get "
      .. "values of the shape %s", tostring(x.shape), tostring(updater.shape))
    updater = updater:to(x.dtype)
    return x.is_meta and updater or torch.no_grad(function()
      return x:copy_(updater)
    end)
  end, { effect = true, updates = { [1] = true } })
end

return function(op)
  bodies(op)
  effects(op)
  op("Detach(X) -> (Y)", 1, function(_, x)
    return x:detach()
  end)
  op("Nop(X) -> (Y)", 1, function(_, x)
    return internal.nop(x)
  end)
end
