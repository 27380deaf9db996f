--- Batches in parts (batchSerializationSettings): what the simulated system sees of a
--- session whose phases several parts of a batch pass, one after another, with one load of
--- the weights. A part is a micro-batch of fewer rows, so the plan is that of the model
--- traced with those; the program computes batches whole, and values are the same.
---
--- Source: PopART's BatchSerializationSettings; its batchserialize.hpp.
local errors = require("lupine.base.errors")
local option_rules = require("popart.option_rules")
local optimizers = require("popart.optimizers")
local session = require("lupine.session")
local settings = require("popart.session_settings")
local tables = require("lupine.base.tables")
local traced = require("popart.traced")

local M = {}

-- The model for a batch's part; nil, and the input whose batch has no so many equal parts.
local function model_of(s, factor)
  local inputs = {}
  for i, input in ipairs(s.model.inputs) do
    local rows = input.shape[1]
    if rows and rows % factor ~= 0 then
      return nil, input.id
    end
    inputs[i] = tables.with(input, { shape = rows and { rows // factor,
      table.unpack(input.shape, 2) } or input.shape })
  end
  return tables.with(s.model, { inputs = inputs })
end

-- The model traced for a part; nil, and why it cannot be.
local function trace(s, factor)
  local why = option_rules.whole(s.options)
  local model, id
  if not why then
    model, id = model_of(s, factor)
    why = id and ("the batch of '%s' has no %d equal parts"):format(id, factor)
  end
  if why then
    return nil, why
  end
  local ok, of = errors.try(traced.trace, model, settings.traces(s))
  if ok then
    return of
  end
  -- a model that was traced whole is at fault for rows alone; what is none of its errors is ours
  if not errors.Exception:is(of) or of.type == "internal_error" then
    error(of, 0)
  end
  return nil, "an operator of the model has its number of rows as a constant: " .. of.message
end

--- Has the spec of a session plan parts of batches, where the options ask for them and the
--- model can be had with fewer rows; else s.whole says why batches are whole.
---@param s table a session's state
---@param spec table session_settings.spec's
function M.plan(s, spec)
  local factor = s.options.batchSerializationSettings.factor
  if factor < 2 then
    return
  end
  local part, why = trace(s, factor)
  if not part then
    s.whole = why
    return
  end
  local loop = s.training and "gradient_accumulation" or "device_iterations"
  spec.system = tables.with(spec.system, { batch_serialization = factor,
    output_slices = spec.system.output_slices * factor })
  session.complete(part.step, tables.with(spec, { compile = tables.with(spec.compile,
    { loss = part.loss, [loop] = spec.compile[loop] * factor }),
    optimizer = s.training and optimizers.view(s.optimizer, settings.trained(s), {},
      settings.scaling(s)) or nil }))
  spec.planned = part.step
end

return M
