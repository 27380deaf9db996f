--- Generation of text: a model's most probable next tokens, or drawn ones, with a cache of
--- keys and values.
---
--- source: documentation of the package transformers, Generation; Holtzman et al. 2019
--- (top_p); Keskar et al. 2019 (repetition_penalty).
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local modes = require("lupine.base.modes")
local torch = require("torch")

local F = torch.nn.functional
local M = {}

local POSITIVE = { min = 1e-9 }
-- name = {check, limits, default}
local OPTIONS = {
  max_new_tokens = { "int", { min = 1, nullable = true } },
  max_length = { "int", { min = 1 }, 20 },
  do_sample = { "bool", nil, false },
  temperature = { "number", POSITIVE, 1.0 },
  top_k = { "int", { min = 0 }, 50 },
  top_p = { "number", { min = 0, max = 1 }, 1.0 },
  repetition_penalty = { "number", POSITIVE, 1.0 },
  use_cache = { "bool", nil, true },
}
local OTHERS = { eos_token_id = true, pad_token_id = true, generator = true, attention_mask = true }

local function names()
  local out = {}
  for _, from in ipairs({ OPTIONS, OTHERS }) do
    for name in next, from do
      out[#out + 1] = name
    end
  end
  return out
end

-- The ids that end a text: one, a list or none.
local function ends(given)
  if check.is_none(given) then
    return {}
  end
  local out = {}
  for i, id in ipairs(type(given) == "table" and given or { given }) do
    out[i] = check.int(id, "generate: eos_token_id")
  end
  return out
end

local function options_of(self, given)
  local o = {}
  check.plain_table(given, "generate: options")
  for name, value in next, given do
    errors.check(OPTIONS[name] or OTHERS[name], "TypeError", "generate: unknown option '%s'%s",
      tostring(name), check.nearest(name, names()))
    o[name] = not check.is_none(value) and value or nil
  end
  o.do_sample, o.use_cache = given.do_sample, given.use_cache
  for name, row in next, OPTIONS do
    if o[name] == nil then
      o[name] = row[3]
    else
      o[name] = check[row[1]](o[name], "generate: " .. name, row[2])
    end
  end
  if given.eos_token_id == nil then
    o.eos = ends(self.config.eos_token_id)
  else
    o.eos = ends(given.eos_token_id)
  end
  o.pad = o.pad_token_id or self.config.pad_token_id or o.eos[1] or 0
  return o
end

--- Logits [B, V] of tokens that a text has already, divided by the penalty, or multiplied
--- where they are negative.
---@param logits torch.Tensor
---@param ids torch.Tensor [B, L]
---@param penalty number
---@return torch.Tensor
function M.repetition(logits, ids, penalty)
  local seen = logits:gather(1, ids)
  return logits:scatter(1, ids, torch.where(seen:lt(0), seen * penalty, seen / penalty))
end

--- Keeps the k largest logits of each row; the others become -inf.
---@param logits torch.Tensor
---@param k integer
---@return torch.Tensor
function M.top_k(logits, k)
  local least = logits:topk(math.min(k, logits:size(1)), 1)[":, -1:"]
  return logits:masked_fill(logits:lt(least), -math.huge)
end

--- Keeps the most probable tokens that together have probability p, one at least.
---@param logits torch.Tensor
---@param p number
---@return torch.Tensor
function M.top_p(logits, p)
  local sorted, order = logits:sort(1)
  local out = F.softmax(sorted, 1):cumsum(1):le(1 - p)
  out[":, -1:"] = false
  return logits:masked_fill(out:scatter(1, order, out), -math.huge)
end

local function choose(logits, ids, o)
  if o.repetition_penalty ~= 1 then
    logits = M.repetition(logits, ids, o.repetition_penalty)
  end
  if not o.do_sample then
    return logits:argmax(1, { keepdim = true })
  end
  logits = logits / o.temperature
  if o.top_k > 0 then
    logits = M.top_k(logits, o.top_k)
  end
  if o.top_p < 1 then
    logits = M.top_p(logits, o.top_p)
  end
  return torch.multinomial(F.softmax(logits, 1), 1, { generator = o.generator })
end

local function is_end(ids, eos)
  local out = torch.zeros(ids.shape, { dtype = torch.bool })
  for _, id in ipairs(eos) do
    out = out:logical_or(ids:eq(id))
  end
  return out
end

-- Tokens that stand before a text to fill its row have no position.
local function positions(mask)
  return mask and (mask:cumsum(1) - 1):clamp({ min = 0 })
end

-- The logits of what comes next. Only what is new goes through the model if there is a cache.
local function step(self, state, o)
  local from = state.cache and state.ids:size(1) - state.new or 0
  local function tail(x)
    return x and x:narrow(1, from, x:size(1) - from)
  end
  local out = self(tail(state.ids), { past_key_values = state.cache, attention_mask = state.mask,
    position_ids = tail(positions(state.mask)), use_cache = o.use_cache })
  state.cache = o.use_cache and out.past_key_values or nil
  return out.logits[":, -1"]
end

local function run(self, ids, o)
  local state = { ids = ids, mask = o.attention_mask, new = 1 }
  local done = torch.zeros({ ids:size(0), 1 }, { dtype = torch.bool })
  local last = o.max_new_tokens and ids:size(1) + o.max_new_tokens or o.max_length
  while state.ids:size(1) < last and not done:all():item() do
    local chosen = choose(step(self, state, o):float(), state.ids, o)
    chosen = chosen:masked_fill(done, o.pad)
    state.ids = torch.cat({ state.ids, chosen }, 1)
    if state.mask then
      state.mask = torch.cat({ state.mask, torch.ones_like(chosen) }, 1)
    end
    done = done:logical_or(is_end(chosen, o.eos))
  end
  return state.ids
end

--- Goes on with texts: gives the ids that were given, and those that follow. A text that
--- reached an end (eos_token_id) is filled with pad_token_id. Texts of different lengths are
--- filled at their beginning, and `attention_mask` says where. Runs eagerly, in eval mode.
---
--- Options: max_new_tokens, max_length (20: of all, unless max_new_tokens is given),
--- do_sample (false: the most probable token), temperature (1), top_k (50; 0: all), top_p (1),
--- repetition_penalty (1), eos_token_id (the configuration's; a number, a list or torch.none),
--- pad_token_id, generator, attention_mask, use_cache (true).
--- errors: TypeError, ValueError
---@param self torch.nn.Module
---@param input_ids torch.Tensor [B, L] int64
---@param options? table<string, any>
---@return torch.Tensor ids [B, L + new]
function M.generate(self, input_ids, options)
  errors.check(torch.is_tensor(input_ids) and input_ids:dim() == 2 and input_ids:size(1) > 0,
    "TypeError", "generate: input_ids: expected a Tensor [batch, length], got %s",
    check.describe(input_ids))
  local o = options_of(self, options or {})
  local _ <close> = modes.set({ self }, false)
  local _ <close> = torch.no_grad()
  return run(self, input_ids:to(torch.int64), o)
end

return M
