--- PopTorch's tutorials of graph networks, ported line by line over
--- torch_scatter: a graph of papers in one batch, many small graphs padded to
--- batches of a fixed size. What PyTorch Geometric has is written out, the data
--- are seeded graphs.
local poptorch = require("poptorch")
local torch = require("torch")
local torch_scatter = require("torch_scatter")
local F = torch.nn.functional
local nn = torch.nn

-- Sums of neighbours, each weighted by both nodes' degrees, after a linear layer.
local GCNConv = nn.Module:extend("GCNConv")

function GCNConv:init(in_channels, out_channels)
  self.lin = nn.Linear(in_channels, out_channels, { bias = false })
  self.bias = nn.Parameter(torch.zeros(out_channels))
end

function GCNConv:forward(x, edge_index)
  local row, col = edge_index[0], edge_index[1]
  local degree = torch_scatter.scatter(torch.ones({ col:size(0) }), col,
    { dim = 0, dim_size = x:size(0) })
  local norm = torch.where(degree:gt(0), degree:clamp(1):pow(-0.5), 0.0)
  local messages = self.lin(x)[row] * (norm[row] * norm[col]):unsqueeze(1)
  return torch_scatter.scatter(messages, col, { dim = 0, dim_size = x:size(0) }) + self.bias
end

local function global_mean_pool(x, batch, size)
  return torch_scatter.scatter(x, batch, { dim = 0, dim_size = size, reduce = "mean" })
end

describe("the worked example", function()
  local NODES, FEATURES, CLASSES = 60, 12, 3

  -- Papers that cite those of their class, with loops to themselves.
  local function citations()
    local g = torch.Generator():manual_seed(3)
    local y = torch.arange(NODES) % CLASSES
    local x = torch.rand({ NODES, FEATURES }, { generator = g })
    x[{ torch.slice(nil, nil), torch.slice(0, CLASSES) }]:add_(F.one_hot(y, CLASSES))
    local from, to = {}, {}
    for i = 0, NODES - 1 do
      for _, step in ipairs({ 0, CLASSES, -CLASSES, 2 * CLASSES }) do
        from[#from + 1], to[#to + 1] = i, (i + step) % NODES
      end
    end
    local train_mask = (torch.arange(NODES) % 5):lt(3)
    return { x = x / x:sum(1, { keepdim = true }), edge_index = torch.tensor({ from, to }), y = y,
      train_mask = train_mask, test_mask = ~train_mask }
  end

  local GCN = nn.Module:extend("GCN")

  function GCN:init(in_channels, out_channels)
    self.conv1 = GCNConv(in_channels, 16)
    self.conv2 = GCNConv(16, out_channels)
  end

  function GCN:forward(x, edge_index, y, train_mask)
    x = self.conv1(x, edge_index):relu()
    x = F.dropout(x, { training = self.training })
    x = self.conv2(x, edge_index):relu()
    x = F.log_softmax(x, { dim = 1 })
    if self.training then
      y = torch.where(train_mask, y, -100)
      local loss = F.nll_loss(x, y)
      return x, loss
    end
    return x
  end

  it("classifies papers from those that it was told", function()
    torch.manual_seed(0)
    local data = citations()
    local model = GCN(FEATURES, CLASSES)
    model:train()
    local optimizer = poptorch.optim.Adam(model:parameters(), { lr = 0.05 })
    local poptorch_options = poptorch.Options()
    local poptorch_model = poptorch.trainingModel(model, poptorch_options,
      { optimizer = optimizer })
    local losses = {}
    for epoch = 1, 100 do
      local _, loss = poptorch_model(data.x, data.edge_index,
        { y = data.y, train_mask = data.train_mask })
      losses[epoch] = loss:item()
    end
    assert.is_true(losses[100] < 0.5 * losses[1], losses[100])
    poptorch_model:detachFromDevice()

    model:eval()
    local poptorch_inf_model = poptorch.inferenceModel(model, { options = poptorch_options })
    local logits = poptorch_inf_model(data.x, data.edge_index)
    poptorch_inf_model:detachFromDevice()
    torch.testing.assert_close(logits, model(data.x, data.edge_index), { rtol = 1e-4, atol = 1e-5 })
    local pred = logits:argmax({ dim = 1 })
    local correct_results = pred[data.test_mask]:eq(data.y[data.test_mask])
    local accuracy = correct_results:sum():item() / data.test_mask:sum():item()
    assert.is_true(accuracy > 0.8, accuracy)
  end)
end)

describe("small graphs, padded", function()
  local FEATURES, MOST_NODES = 4, 6

  -- Rings of nodes; the answer is the mean of their first feature.
  local Rings = torch.utils.data.Dataset:extend("Rings")

  function Rings:init(count)
    self.count = count
  end

  function Rings:__len__()
    return self.count
  end

  function Rings.__getitem__(_, i)
    local g = torch.Generator():manual_seed(i)
    local n = 3 + i % (MOST_NODES - 2)
    local x = torch.rand({ n, FEATURES }, { generator = g })
    local at = torch.arange(n)
    return { x = x, edge_index = torch.stack({ at, (at + 1) % n }), y = x[":, 0"]:mean() }
  end

  -- What FixedSizeDataLoader's collater does: the last graph of a batch has all
  -- padding.
  local function fixed_size(batch_size)
    local nodes = MOST_NODES * batch_size
    return function(graphs)
      local x, edges, y, batch, first = {}, {}, {}, {}, 0
      for i, graph in ipairs(graphs) do
        local n = #graph.x
        x[i], edges[i], y[i] = graph.x, graph.edge_index + first, graph.y
        batch[i] = torch.full({ n }, i - 1)
        first = first + n
      end
      local missing = nodes - first
      x[#x + 1] = torch.zeros(missing, FEATURES)
      edges[#edges + 1] = torch.full({ 2, missing }, first)
      y[#y + 1] = torch.tensor(0.0)
      batch[#batch + 1] = torch.full({ missing }, batch_size - 1)
      return { x = torch.cat(x), edge_index = torch.cat(edges, { dim = 1 }), y = torch.stack(y),
        batch = torch.cat(batch) }
    end
  end

  local GcnForBatching = nn.Module:extend("GcnForBatching")

  function GcnForBatching:init(hidden_channels, batch_size)
    torch.manual_seed(1234)
    self.conv = GCNConv(FEATURES, hidden_channels)
    self.lin = nn.Linear(hidden_channels, 1)
    self.batch_size = batch_size -- includes the padding graph
  end

  function GcnForBatching:forward(x, edge_index, y, batch)
    x = self.conv(x, edge_index):relu()
    x = global_mean_pool(x, batch, self.batch_size)
    x = F.dropout(x, { p = 0.1, training = self.training })
    x = self.lin(x):squeeze(1)
    if self.training then
      -- mask out the null graph from the loss
      return F.mse_loss(x[{ torch.slice(nil, self.batch_size - 1) }],
        y[{ torch.slice(nil, self.batch_size - 1) }])
    end
    return x
  end

  it("trains on batches of one size", function()
    local batch_size = 8
    local dataset = Rings(70)
    local loader = poptorch.DataLoader(poptorch.Options(), dataset,
      { batch_size = batch_size - 1, collate_fn = fixed_size(batch_size) })
    local model = GcnForBatching(16, batch_size)
    local optim = poptorch.optim.Adam(model:parameters(), { lr = 0.02 })
    local poptorch_model = poptorch.trainingModel(model, { optimizer = optim,
      options = poptorch.Options() })
    poptorch_model:train()
    local loss_per_epoch = {}
    for epoch = 1, 6 do
      local total_loss = 0
      for data in loader do
        assert.equal(MOST_NODES * batch_size, #data.x)
        local loss = poptorch_model(data.x, data.edge_index, data.y, data.batch)
        total_loss = total_loss + loss
        optim:zero_grad()
      end
      loss_per_epoch[epoch] = total_loss:item() / #dataset
    end
    assert.is_true(loss_per_epoch[6] < 0.5 * loss_per_epoch[1], table.concat(loss_per_epoch, " "))

    -- the null graph changes nothing: the graphs one by one on the host
    model:eval()
    local data = loader:iter()()
    local answers = poptorch.inferenceModel(model)(data.x, data.edge_index, data.y, data.batch)
    for i = 0, batch_size - 2 do
      local graph = dataset:__getitem__(i)
      local alone = global_mean_pool(model.conv(graph.x, graph.edge_index):relu(),
        torch.zeros({ #graph.x }, { dtype = torch.int64 }), 1)
      torch.testing.assert_close(answers[i], model.lin(alone)[0][0], { rtol = 1e-4, atol = 1e-5 })
    end
  end)
end)
