--- Random numbers of a session: their seed and state, and inputs that are made up.
---
--- Source: PopART Python API, Session and SyntheticDataMode.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local loading = require("popart.session.loading")
local logging = require("popart.logging")
local settings = require("popart.session_settings")
local torch = require("torch")

local M = { methods = {} }
local methods = M.methods

local prepared = loading.prepared

--- The random numbers of the runs that follow begin anew.
--- error: popart_runtime_error before prepareDevice
---@param seed integer
function methods:setRandomSeed(seed)
  local s = prepared(self, "setRandomSeed")
  check.int(seed, "setRandomSeed: seedValue", { min = 0 })
  if not s.random then
    logging.warn("session", "Trying to set the random seed, but this session has no random "
      .. "behaviour. Doing nothing.")
    return
  end
  s.session:random_state(seed, 0)
end

---@return integer 0 for a program that draws nothing
function methods:getRandomSeed()
  local s = prepared(self, "getRandomSeed")
  return s.random and (s.session:random_state()) or 0
end

-- Words of the state: the seed's halves, and how many micro-batches have drawn.
local WORDS = 4

local function check_state(s, what)
  errors.check(s.options.enableLoadAndOffloadRNGState, "popart_runtime_error", "Trying to %s the "
    .. "RNG state, but the session option enableLoadAndOffloadRNGState must be set to True.", what)
end

--- Where the program's random numbers are, to go on from there later.
--- error: popart_runtime_error without SessionOptions.enableLoadAndOffloadRNGState
---@return integer[] of 32 bits each; none where there are no streams
function methods:getRNGState()
  local s = prepared(self, "getRNGState")
  check_state(s, "get")
  if s.options.syntheticDataMode.name ~= "Off" then
    return {}
  end
  local seed, drawn = s.session:random_state()
  return { seed & 0xffffffff, seed >> 32, drawn & 0xffffffff, drawn >> 32 }
end

--- Goes on from there.
--- error: popart_runtime_error for what getRNGState has not given
---@param state integer[]
function methods:setRNGState(state)
  local s = prepared(self, "setRNGState")
  check_state(s, "set")
  check.plain_table(state, "setRNGState: rngValue")
  errors.check(#state == WORDS, "popart_runtime_error", "Devicex::setRngStateValue received "
    .. "rngState of size %d; was expecting size %d", #state, WORDS)
  for i = 1, WORDS do
    check.int(state[i], ("setRNGState: word %d"):format(i - 1), { min = 0, max = 0xffffffff })
  end
  s.session:random_state(state[1] | state[2] << 32, state[3] | state[4] << 32)
end

-- ---- data that are made up -----------------------------------------------------------------

local dtypes = core.dtypes

-- Least and greatest value + 1.
local RANGES = { [dtypes.int8] = { -0x80, 0x80 }, [dtypes.uint8] = { 0, 0x100 },
  [dtypes.int16] = { -0x8000, 0x8000 }, [dtypes.int32] = { -0x80000000, 0x80000000 },
  [dtypes.bool] = { 0, 2 } }

local function uniform(d, g)
  if d.dtype.is_floating_point then
    return torch.rand(d.shape, { generator = g }):to(d.dtype)
  end
  local range = errors.check(RANGES[d.dtype], "popart_exception",
    "Can't generate synthetic data for DataType %s of tensor %s", tostring(d.dtype), d.id)
  return torch.randint(range[1], range[2], d.shape, { generator = g, dtype = dtypes.int64 })
    :to(d.dtype)
end

-- One micro-batch's values, by SyntheticDataMode. Floats of RandomUniform are of [0, 1),
-- integers of all that their type has.
local MADE = {
  Zeros = function(d)
    return torch.zeros(d.shape, { dtype = d.dtype })
  end,
  RandomNormal = function(d, g)
    return torch.randn(d.shape, { generator = g }):to(d.dtype)
  end,
  RandomUniform = uniform,
}

--- What a run reads where nothing comes from the host (SessionOptions.syntheticDataMode):
--- made once, the same for all micro-batches and replicas.
---@param s table
---@return torch.Tensor[]
function M.synthetic(s)
  if not s.made_up then
    local g, values = torch.Generator(), {}
    g:manual_seed(0)
    for i, d in ipairs(settings.program(s).inputs) do
      local one = MADE[s.options.syntheticDataMode.name](d, g)
      values[i] = one:unsqueeze(0):expand({ d.steps * d.replicas, table.unpack(d.shape) })
        :reshape(d.rows)
    end
    s.made_up = settings.feed(s, values)
  end
  return s.made_up
end

return M
