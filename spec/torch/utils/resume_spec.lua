-- A loader's state: the rest of an epoch in another process has the bits of the epoch
-- that was not interrupted, whatever the number of workers. Values: the uninterrupted
-- run.
local epochs = require("spec.support.epochs")
local torch = require("torch")
local data = torch.utils.data

local STOPS = { 0, 1, 2, 3, 4, 5, 6, 7, 9, 12 }

local function all_right(make, first, second, count, stops)
  local wrong, n = epochs.wrong_stops(make, first, second or first, count or 3, stops or STOPS)
  assert.same({}, wrong)
  assert.is_true(n >= 12)
end

describe("resuming a DataLoader", function()
  for _, pair in ipairs({ { 0, 0 }, { 1, 1 }, { 3, 3 }, { 0, 3 }, { 3, 1 }, { 1, 0 } }) do
    it(("shuffled, read by %d workers and then by %d"):format(pair[1], pair[2]), function()
      all_right(function(n)
        return data.DataLoader(epochs.Noisy(10), { batch_size = 2, shuffle = true,
          num_workers = n })
      end, pair[1], pair[2])
    end)
  end

  local ORDERS = {
    generator = function(set)
      return { batch_size = 2, shuffle = true, generator = torch.Generator():manual_seed(5) }, set
    end,
    replacement = function(set)
      return { batch_size = 2, sampler = data.RandomSampler(set, true, 11) }
    end,
    weighted = function()
      return { batch_size = 2, sampler = data.WeightedRandomSampler(torch.arange(1, 11), 9, true,
        torch.Generator():manual_seed(3)) }
    end,
    subset = function()
      return { batch_size = 2, sampler = data.SubsetRandomSampler({ 1, 3, 5, 7, 9, 0, 2 }) }
    end,
    lazy = function()
      return { batch_size = 2, sampler = epochs.Lazy(9) }
    end,
    ["lazy batches"] = function()
      return { batch_sampler = data.BatchSampler(epochs.Lazy(9), 2, false) }
    end,
    ["single samples"] = function()
      return { batch_size = torch.none, shuffle = true }
    end,
    list = function()
      return { batch_size = 2, sampler = { 4, 2, 8, 6, 0, 1 } }
    end,
  }
  for name, order in pairs(ORDERS) do
    it("goes on in the order of: " .. name, function()
      for _, workers in ipairs({ 0, 2 }) do
        all_right(function(n)
          local set = epochs.Noisy(10)
          local options = order(set)
          options.num_workers = n
          return data.DataLoader(set, options)
        end, workers)
      end
    end)
  end

  it("of tensors, which are read in whole batches", function()
    local set = data.TensorDataset(torch.rand({ 11, 3 }))
    all_right(function()
      return data.DataLoader(set, { batch_size = 2, shuffle = true })
    end, 0)
  end)

  it("of streams, the rest of which is the same for the same workers", function()
    for _, workers in ipairs({ 0, 1, 3 }) do
      all_right(function(n)
        return data.DataLoader(epochs.Stream(9), { batch_size = 2, num_workers = n })
      end, workers)
    end
  end)

  it("of workers that live on", function()
    all_right(function(n)
      return data.DataLoader(epochs.Noisy(10), { batch_size = 3, shuffle = true, num_workers = n,
        persistent_workers = true })
    end, 2)
  end)

  it("reads nothing again", function()
    local loader = data.DataLoader(epochs.Noisy(10), { batch_size = 2, shuffle = true })
    local step = loader:iter()
    step()
    step()
    step()
    local set = epochs.Noisy(10)
    local other = data.DataLoader(set, { batch_size = 2, shuffle = true })
    other:load_state_dict(loader:state_dict())
    for _ in other do end
    assert.equal(4, set.read)
  end)

  it("counts what the loop has, not what workers have read ahead", function()
    local loader = data.DataLoader(epochs.Noisy(10), { batch_size = 2, num_workers = 2 })
    local step, _, _, guard = loader:iter()
    step()
    assert.equal(1, loader:state_dict().position)
    getmetatable(guard).__close(guard)
  end)

  it("leaves the global random numbers alone", function()
    local loader = data.DataLoader(epochs.Noisy(10), { batch_size = 2, shuffle = true })
    local step = loader:iter()
    step()
    local state, now = loader:state_dict(), torch.get_rng_state()
    loader:load_state_dict(state)
    local _ = loader:iter()()
    assert.is_true(torch.equal(now, torch.get_rng_state()))
  end)

  it("begins a new epoch after end_epoch", function()
    local loader = data.DataLoader(epochs.Noisy(10), { batch_size = 2 })
    loader:iter()()
    loader:end_epoch()
    assert.same({ in_epoch = false, position = 0, parts = { batch_sampler = {
      sampler = {} } } }, loader:state_dict())
    loader:iter()()
    local other = data.DataLoader(epochs.Noisy(10), { batch_size = 2 })
    other:load_state_dict(loader:state_dict())
    other:end_epoch()
    local n = 0
    for _ in other do
      n = n + 1
    end
    assert.equal(5, n)
  end)

  it("refuses what is no state", function()
    local loader = data.DataLoader(epochs.Noisy(4))
    for _, bad in ipairs({ 1, {}, { parts = {}, in_epoch = 1 },
      { parts = {}, in_epoch = true, position = -1 },
      { parts = {}, in_epoch = true, position = 1 } }) do
      assert.has_error(function()
        loader:load_state_dict(bad)
      end)
    end
    local half = data.DataLoader(epochs.Noisy(4), { batch_size = 2 })
    half:iter()()
    for _, other in ipairs({ data.DataLoader(epochs.Noisy(4)),
      data.DataLoader(epochs.Noisy(6), { batch_size = 2 }) }) do
      assert.has_error(function()
        other:load_state_dict(half:state_dict())
      end)
    end
    local with = data.DataLoader(epochs.Noisy(4), { shuffle = true,
      generator = torch.Generator() })
    assert.has_error(function()
      loader:load_state_dict(with:state_dict())
    end)
  end)
end)
