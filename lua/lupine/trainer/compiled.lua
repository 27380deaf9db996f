--- Steps that are one program each (lupine.compile).
local batch = require("lupine.trainer.batch")
local Host = require("lupine.trainer.host")

---@class lupine.trainer.Compiled: lupine.trainer.Host
local Compiled = Host:extend("Compiled")

--- Compiles with the first batch.
---@param o table options of the Trainer
function Compiled:init(o)
  Host.init(self, o)
  self.step = require("lupine.compile")(o.model, { optimizer = o.optimizer, loss = o.loss,
    accumulation = o.accumulation, clip_grad_norm = o.clip_grad_norm, guard = true })
end

-- What a call returned of forward, and the loss.
local function sorted(self, results)
  if not self.loss then
    return results, batch.loss(results)
  end
  local loss = results[results.n]
  results.n = results.n - 1
  return results, loss
end

--- A batch. A loss that is not finite holds the update.
---@param values {n: integer}
---@return table
function Compiled:train(values)
  values = self:prepared(values)
  local _ <close> = self:casting()
  local results, loss = sorted(self, table.pack(self.step(table.unpack(values, 1, values.n))))
  local r = self:record(values, results, loss, self.step:loss())
  r.finite = not self.step.held
  r.updated = r.finite and self.step.gathered == 0 and 1 or 0
  return r
end

--- The update of a group that is not full.
---@return boolean
function Compiled:flush()
  return self.step:update()
end

--- A batch in eval mode, without gradients.
---@param values {n: integer}
---@return table
function Compiled:evaluate(values)
  values = self:prepared(values)
  local _ <close> = self:casting()
  local results, loss = sorted(self,
    table.pack(self.step:evaluate(table.unpack(values, 1, values.n))))
  return self:record(values, results, loss)
end

--- The model alone.
---@param values {n: integer}
---@return any ...
function Compiled:predict(values)
  local args = self:model_arguments(self:prepared(values))
  local _ <close> = self:casting()
  return self.step:predict(table.unpack(args, 1, args.n))
end

return Compiled
