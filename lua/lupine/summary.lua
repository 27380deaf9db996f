--- A table of a model's layers: shapes of results, parameters, multiply-adds.
---
---     print(lupine.summary(model, { torch.empty(64, 1, 28, 28) }))
---
--- The model is traced, not run: no number is computed or drawn, nothing is written.
--- Multiply-adds are those of products, convolutions and recurrent layers, wherever
--- they stand in forward, an attention's as well as a layer's; other operators count
--- none (half of the operations of its gates are among a recurrent layer's). What a
--- layer does beside its sub-layers stands in its own row, so that the rows add up to the
--- totals. A parameter of several layers counts in the first.
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local forward = require("lupine.session.forward")

---@class lupine.SummaryRow
---@field path string "encoder.0", of the model ""
---@field class string
---@field depth integer 0 of the model
---@field shapes integer[][] of the results of its last call
---@field called boolean
---@field params integer its own
---@field trainable integer of these
---@field mult_adds integer its own

---@class lupine.Summary
---@field rows lupine.SummaryRow[]
---@field total_params integer
---@field trainable_params integer
---@field total_mult_adds integer
---@field total_param_bytes integer
local Summary = class.new("Summary")

-- ---- rows ------------------------------------------------------------------------------

-- Numbers of elements of a module's own parameters that no row before has.
local function count_parameters(module, seen, row)
  for _, _, p in module._parameters:each() do
    if core.is_tensor(p) and not seen[p] then
      seen[p] = true
      row.params = row.params + p:numel()
      row.trainable = row.trainable + (p.requires_grad and p:numel() or 0)
      row.bytes = row.bytes + p:numel() * p:element_size()
    end
  end
end

local function depth_of(path)
  return path == "" and 0 or 1 + select(2, path:gsub("%.", ""))
end

local function rows_of(model)
  local rows, by_path, seen = {}, {}, {}
  for path, module in model:named_modules() do
    local row = { path = path, class = module:_get_name(), depth = depth_of(path), shapes = {},
      called = false, params = 0, trainable = 0, bytes = 0, mult_adds = 0, module = module }
    count_parameters(module, seen, row)
    rows[#rows + 1], by_path[path] = row, row
  end
  return rows, by_path
end

-- ---- the trace -------------------------------------------------------------------------

local function sizes(t)
  return { table.unpack(t.shape) }
end

local function declare(trace, model, inputs)
  local stand_ins, named = {}, {}
  for i, x in ipairs(inputs) do
    stand_ins[i] = trace:declare("input", "input_" .. i, nil, sizes(x), x.dtype)
  end
  for role, list in pairs({ parameter = "named_parameters", buffer = "named_buffers" }) do
    for name, t in model[list](model) do
      if not named[t] and not trace:knows(t) then
        named[t] = true
        trace:declare(role, name, t)
      end
    end
  end
  return stand_ins
end

-- Notes the shapes of what each module gives, until the value is closed.
local function watch_results(rows)
  local handles = {}
  for i, row in ipairs(rows) do
    handles[i] = row.module:register_forward_hook(function(_, _, output)
      local flat = {}
      arguments.flatten(output, "result", flat)
      for k, entry in ipairs(flat) do
        flat[k] = sizes(entry.tensor)
      end
      row.shapes, row.called = flat, true
    end)
  end
  return setmetatable({}, { __close = function()
    for _, handle in ipairs(handles) do
      handle:remove()
    end
  end })
end

-- forward(stand-ins) under the trace; each operator knows the path of its module.
local function run(trace, model, rows, stand_ins)
  local Module = require("torch.nn").Module
  local names, path_of, frozen = forward.names_of(trace, true), {}, {}
  for _, row in ipairs(rows) do
    path_of[row.module] = row.path
  end
  local before = forward.registered(model)
  forward.show(before, {})
  local _ <close> = setmetatable({}, { __close = function()
    Module.tracer = nil
    forward.thaw(frozen)
    forward.take_back(before)
  end })
  local _ <close> = watch_results(rows)
  local _ <close> = require("torch").set_grad_enabled(false)
  Module.tracer = { leave = names.leave, assign = forward.assigner(frozen),
    enter = function(module)
      names.module(path_of[module] or "")
    end }
  return table.pack(trace:run(true, model, table.unpack(stand_ins)))
end

local function trace_of(model, rows, inputs)
  errors.check(not core.is_tracing(), "RuntimeError",
    "summary: a model is summed up outside of traced functions")
  local trace = core.trace()
  local results, flat = run(trace, model, rows, declare(trace, model, inputs)), {}
  for i = 1, results.n do
    arguments.flatten(results[i], "result", flat)
  end
  for i, entry in ipairs(flat) do
    flat[i] = entry.tensor
  end
  local step = trace:step(flat)
  step:complete({})
  return step
end

-- What multiplies and adds, two operations each; of those that add a bias in the same
-- pass one operation an element is that.
local PRODUCTS = { mm = 0, bmm = 0, convolution = 0, convolution_backward_input = 0, lstm = 0,
  gru = 0, rnn = 0, mm_plus = 1, bmm_plus = 1, convolution_plus = 1 }

local function add_products(step, by_path)
  local plan = core.plan(step, { allow_out_of_memory = true, round_ipus = true })
  for _, node in ipairs(plan:nodes()) do
    local added = PRODUCTS[node.operator]
    if added then
      local row = by_path[node.scope] or by_path[""]
      row.mult_adds = row.mult_adds + (node.flops - added * node.elements) // 2
    end
  end
end

-- ---- all of it -------------------------------------------------------------------------

-- Rows below `depth` are added to the row at `depth` that they belong to.
local function folded(rows, depth)
  local out = {}
  for _, row in ipairs(rows) do
    local into = out[#out]
    if row.depth <= depth then
      out[#out + 1] = row
    else
      for _, field in ipairs({ "params", "trainable", "bytes", "mult_adds" }) do
        into[field] = into[field] + row[field]
      end
    end
  end
  return out
end

local function check_inputs(model, inputs, opts)
  local Module = require("torch.nn").Module
  errors.check(Module:is(model), "TypeError", "summary: model: expected a torch.nn.Module, got %s",
    check.describe(model))
  errors.check(type(inputs) == "table" and not getmetatable(inputs), "TypeError",
    "summary: inputs: expected a list of tensors, got %s", check.describe(inputs))
  for i, x in ipairs(inputs) do
    errors.check(core.is_tensor(x), "TypeError", "summary: inputs[%d]: expected a tensor, got %s",
      i, check.describe(x))
  end
  opts = opts or {}
  errors.check(type(opts) == "table", "TypeError", "summary: options: expected a table, got %s",
    check.describe(opts))
  for key in pairs(opts) do
    errors.check(key == "depth", "TypeError", "summary: unknown option '%s'. Allowed: depth",
      tostring(key))
  end
  errors.check(opts.depth == nil or math.type(opts.depth) == "integer" and opts.depth >= 0,
    "ValueError", "summary: depth: expected an int of at least 0, got %s",
    check.describe(opts.depth))
  return opts.depth or math.maxinteger
end

function Summary:init(rows)
  self.rows = rows
  self.total_params, self.trainable_params, self.total_mult_adds = 0, 0, 0
  self.total_param_bytes = 0
  for _, row in ipairs(rows) do
    self.total_params = self.total_params + row.params
    self.trainable_params = self.trainable_params + row.trainable
    self.total_mult_adds = self.total_mult_adds + row.mult_adds
    self.total_param_bytes = self.total_param_bytes + row.bytes
    row.module, row.bytes = nil, nil
  end
end

local function shapes_text(row)
  local out = {}
  for i, shape in ipairs(row.shapes) do
    out[i] = "[" .. table.concat(shape, ", ") .. "]"
  end
  return row.called and table.concat(out, " ") or "not called"
end

local function line_of(row)
  local name = row.path == "" and row.class
    or ("  "):rep(row.depth) .. row.path:match("[^.]*$") .. " (" .. row.class .. ")"
  return { name, shapes_text(row), check.grouped(row.params), check.grouped(row.mult_adds) }
end

--- The table as text.
---@return string
function Summary:__tostring()
  local lines, wide = { { "layer", "results", "parameters", "multiply-adds" } }, {}
  for _, row in ipairs(self.rows) do
    lines[#lines + 1] = line_of(row)
  end
  for _, line in ipairs(lines) do
    for i, cell in ipairs(line) do
      wide[i] = math.max(wide[i] or 0, #cell)
    end
  end
  for i, line in ipairs(lines) do
    lines[i] = ("%-" .. wide[1] .. "s  %-" .. wide[2] .. "s  %" .. wide[3] .. "s  %" .. wide[4]
      .. "s"):format(table.unpack(line))
  end
  lines[#lines + 1] = ("parameters: %s (%.1f MB), of which %s are trained; multiply-adds: %s")
    :format(check.grouped(self.total_params), self.total_param_bytes / 1e6,
      check.grouped(self.trainable_params), check.grouped(self.total_mult_adds))
  return table.concat(lines, "\n")
end

--- Sums up a model that gets such inputs. Only shapes and dtypes of inputs are looked
--- at. The model is taken in the mode that it is in (train, eval).
--- error: TypeError, ValueError; what tracing the model raises
---@param model torch.nn.Module
---@param inputs torch.Tensor[]
---@param opts? {depth: integer} depth: rows of layers deeper down are added up in theirs
---@return lupine.Summary
return function(model, inputs, opts)
  local depth = check_inputs(model, inputs, opts)
  local rows, by_path = rows_of(model)
  add_products(trace_of(model, rows, inputs), by_path)
  return Summary(folded(rows, depth))
end
