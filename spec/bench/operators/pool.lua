--- The tensors that the operators' expressions speak of, for one size. Values come
--- from a file that both sides read; what has another dtype is made of it.
local safetensors = require("lupine.safetensors")
local torch = require("torch")

local M = {}

-- Images are [n, channels, side, side] of about as many elements.
local IMAGES = { [16] = { 1, 1, 4 }, [10000] = { 1, 4, 50 }, [1000000] = { 4, 16, 125 } }

local function side(size)
  return math.tointeger(math.sqrt(size))
end

local function images(size, t)
  local n, c, hw = table.unpack(IMAGES[size])
  t.image = torch.randn({ n, c, hw, hw })
  t.quad = torch.randn({ n, 4 * c, hw // 2, hw // 2 })
  t.kernel, t.kernel1 = torch.randn({ c, c, 3, 3 }), torch.randn({ c, c, 1, 1 })
  t.depth = torch.randn({ c, 1, 3, 3 })
  t.signal, t.tap = torch.randn({ n, c, hw * hw }), torch.randn({ c, c, 3 })
  t.grid = torch.rand({ n, hw, hw, 2 }) * 2 - 1
end

local function speech(s, t)
  local batch, labels = math.min(s, 16), math.max(s // 10, 1)
  t.speech = torch.randn({ s, batch, math.max(s // batch, 4) }):log_softmax(2)
  t.labels = torch.randint(1, t.speech:size(2), { batch, labels })
  t.lengths = torch.full({ batch }, s, { dtype = torch.int64 })
  t.label_lengths = torch.full({ batch }, labels, { dtype = torch.int64 })
end

--- Writes the values of a size.
---@param size integer
---@param path string
function M.write(size, path)
  local s, t = side(size), {}
  torch.manual_seed(1)
  t.x, t.y, t.z = torch.randn({ s, s }), torch.randn({ s, s }), torch.randn({ s, s })
  t.u = torch.rand({ s, s }) * 0.8 + 0.1
  t.target = torch.rand({ s, s })
  t.row, t.column = torch.randn({ s }), torch.randn({ s, 1 })
  t.flat, t.sorted = torch.randn({ size }), torch.rand({ s, s }):sort(1)
  t.index, t.line = torch.randint(0, s, { s, s }), torch.randint(0, s, { s })
  t.definite = t.x:matmul(t.x:t()) + torch.eye(s) * s
  local k = math.max(s // 16, 1)
  t.blocks = torch.randn({ k, 16, 16 })
  t.heads = torch.randn({ 1, math.max(s // 64, 1), math.min(s * s // 16, s), 16 })
  t.thin, t.cube = torch.randn({ s, 8 }), torch.randn({ 8, 8, 8 })
  images(size, t)
  speech(s, t)
  safetensors.save_file(t, path)
end

--- Reads them, and makes the rest.
---@param size integer
---@param path string
---@return table<string, any>
function M.read(size, path)
  local t = safetensors.load_file(path)
  t.n, t.s, t.channels = size, side(size), t.image:size(1)
  t.mask = t.x:gt(0)
  t.half, t.brief = t.x:half(), t.x:bfloat16()
  return t
end

return M
