--- What a poptorch.DataLoader reads: a process's part of a dataset, and several
--- batches of a sampler as one.
--- Source: PopTorch API reference, poptorch.DataLoader.
local check = require("lupine.base.check")
local dataset = require("torch.utils.data.dataset")
local loop = require("torch.utils.data.loop")
local random = require("torch.utils.data.random")
local sampler = require("torch.utils.data.sampler")

local M = {}

-- ---- a process's part of a dataset -----------------------------------------

-- Which elements this process reads. With drop_last every process gets the
-- same number, whole batches; else all elements, the first processes one more.
-- Shuffled, all processes use one permutation per epoch, made of the seed, and
-- every second epoch the window lies at the end, so that left-overs get used.
local Part = sampler.Sampler:extend("DistributedSampler")
M.Part = Part

function Part:init(n, step, d, drop_last, seed)
  self.n, self.seed, self.epoch = n, seed, 0
  local processes = d.numProcesses
  if drop_last then
    self.count = step * (n // (step * processes))
    self.first = d.processId * self.count
    self.left = n - self.count * processes
  else
    local each, more = n // processes, n % processes
    self.count = each + (d.processId < more and 1 or 0)
    self.first = d.processId * each + math.min(d.processId, more)
    self.left = 0
  end
end

function Part:_order()
  local torch = require("torch")
  local epoch = self.epoch
  self.epoch = epoch + 1
  if not self.seed then
    return self.count, torch.arange(self.first, self.first + self.count)
  end
  local source = torch.Generator():manual_seed(self.seed * 1000003 + epoch)
  local shift = epoch % 2 == 1 and self.left or 0
  return self.count, random.permutation(self.n, source):narrow(0, self.first + shift, self.count)
end

Part.__iter__ = sampler.iterate_order

function Part:__len__()
  return self.count
end

-- ---- several batches of a sampler as one -----------------------------------

-- Groups of `factor` batches: as one list of indices, or, separate, as a list of
-- the batches.
local Combined = sampler.Sampler:extend("CombinedBatchSampler")
M.Combined = Combined

function Combined:init(batches, factor, drop_last, separate)
  self.batches, self.factor, self.drop_last = batches, factor, drop_last
  self.separate = separate
end

local function append(self, group, batch)
  check.table(batch, "DataLoader: batch_sampler: a batch of indices")
  if self.separate then
    group[#group + 1] = batch
  else
    table.move(batch, 1, #batch, #group + 1, group)
  end
end

function Combined:__iter__()
  local next_batch = loop.iterate(self.batches, "DataLoader: batch_sampler")
  return function()
    local group, count = {}, 0
    while count < self.factor do
      local batch = next_batch()
      if batch == nil then
        break
      end
      append(self, group, batch)
      count = count + 1
    end
    if count == 0 or count < self.factor and self.drop_last then
      return nil
    end
    return group
  end
end

function Combined:__len__()
  local n = dataset.len(self.batches)
  return self.drop_last and n // self.factor or -(-n // self.factor)
end

return M
