--- Applications to graphs of PopTorch's public examples, small: trained on the device
--- and on the host from the same weights.
local poptorch = require("poptorch")
local scatter = require("torch_scatter").scatter
local torch = require("torch")
local twins = require("spec.support.twins")
local nn = torch.nn
local F = nn.functional
local flat, near, trains = twins.flat, twins.near, twins.trains

-- ---- temporal graph networks -------------------------------------------------------

local TGN = nn.Module:extend("TGN")

function TGN:init(nodes, deep, wide)
  self.nodes = nodes
  self.time_enc = nn.Linear(1, 3)
  self.gru = nn.GRUCell(2 * deep + wide + 3, deep)
  self.query, self.key = nn.Linear(deep, deep), nn.Linear(deep, deep)
  self.value, self.skip = nn.Linear(deep, deep), nn.Linear(deep, deep)
  self.edge = nn.Linear(wide + 3, deep, { bias = false })
  self.hidden, self.final = nn.Linear(2 * deep, deep), nn.Linear(deep, 1)
  self:register_buffer("_ints", torch.zeros(nodes + 1, 3))
  self:register_buffer("_memory", torch.zeros(nodes + 1, deep))
  self:register_buffer("_messages", torch.zeros(nodes + 1, wide))
  self:register_buffer("_direction", torch.zeros(nodes + 1, 2))
  self.criterion = nn.BCEWithLogitsLoss()
end

function TGN:encoded(t)
  return self.time_enc(t:to(torch.float32):view(-1, 1)):cos()
end

function TGN:remembered(ids)
  local update, since, other = table.unpack(torch.unbind(self._ints[ids]:long(), 1))
  local to, from = self._memory[other], self._memory[ids]
  local direction = self._direction[ids]
  local a, b = direction[":, 0:1"], direction[":, 1:2"]
  local all = torch.cat({ from * a + to * b, from * b + to * a, self._messages[ids],
    self:encoded(since) }, 1)
  return self.gru(all, from), update
end

-- The softmax of messages to each node.
local function softmax(values, index, n)
  local e = torch.exp(values - torch.amax(values, 0))
  local sums = torch.scatter_add(torch.zeros(n, 1), 0, index:unsqueeze(1), e)
  return e / (sums[index] + 1e-16)
end

function TGN:embedded(x, update, edges, t, msg)
  local attr = self.edge(torch.cat({ msg, self:encoded(update[edges[0]] - t) }, -1))
  local to, from = x:index_select(0, edges[1]), x:index_select(0, edges[0])
  local key = self.key(from)
  key:add_(attr)
  local alpha = softmax((self.query(to) * key):sum(-1, { keepdim = true }) / 2, edges[1], x:size(0))
  local out = self.value(from)
  out:add_(attr)
  out:mul_(alpha)
  return scatter(out, edges[1], { dim = 0, dim_size = x:size(0) }) + self.skip(x)
end

function TGN:link(a, b)
  return self.final(self.hidden(torch.cat({ a, b }, { dim = -1 })):relu())
end

function TGN:update(memory, update, ids, idx, t, msg, recent)
  local flat_idx = torch.reshape(idx[":2"], { -1 })
  local written = ids[flat_idx]
  local at = torch.reshape(recent, { -1 }) * written
  local t2 = t:repeat_(2)
  local direction = torch.eye(2):repeat_interleave(idx.shape[2], 0)
  self._ints:index_put_({ at }, torch.stack({ t2:float(), (t2 - update[flat_idx]):float(),
    written:roll(idx:size(1)):float() }, { dim = -1 }))
  self._memory:index_put_({ at }, memory[flat_idx]:detach())
  self._messages:index_put_({ at }, msg:repeat_(2, 1))
  self._direction:index_put_({ at }, direction)
end

function TGN:forward(...)
  local ids, idx, t, msg, recent, edges, edge_t, edge_msg
  do
    local squeezed = {}
    for i, x in ipairs({ ... }) do
      squeezed[i] = x:squeeze(0)
    end
    ids, idx, t, msg, recent, edges, edge_t, edge_msg = table.unpack(squeezed)
  end
  local memory, update = self:remembered(ids)
  local z = self:embedded(memory, update, edges, edge_t, edge_msg)
  local pos, neg = self:link(z[idx[0]], z[idx[1]]), self:link(z[idx[0]], z[idx[2]])
  local mask = idx[0]:lt(ids.shape[1] - 1):reshape(pos:size())
  pos:mul_(mask)
  neg:mul_(mask)
  local count = torch.sum(mask)
  local loss
  if self.training then
    loss = self.criterion(pos, torch.ones_like(pos))
    loss = loss + self.criterion(neg, torch.zeros_like(neg))
  end
  self:update(memory, update, ids, idx, t, msg, recent)
  if self.training then
    return count, poptorch.identity_loss(loss, "none")
  end
  return count, torch.cat({ pos, neg }, { dim = 0 }):sigmoid()
end

-- A padded batch of 3 events (the last one is padding) among 6 of the nodes.
local function events(call)
  torch.manual_seed(100 + call)
  local ids = F.pad(torch.randperm(9)[":5"] + 1, { 0, 1 })
  return { ids[torch.none], torch.tensor({ { { 0, 1, 5 }, { 2, 3, 5 }, { 4, 2, 5 } } }),
    torch.tensor({ { 3 * call, 3 * call + 1, 0 } }, { dtype = torch.int32 }), torch.randn(1, 3, 2),
    torch.tensor({ { { true, true, false }, { true, true, false } } }),
    torch.randint(0, 5, { 1, 2, 7 }), torch.randint(0, 3 * call, { 1, 7 }, { dtype = torch.int32 }),
    torch.randn(1, 7, 2) }
end

describe("temporal graph networks", function()
  it("remember events in buffers by places that events name", function()
    torch.manual_seed(2)
    local net = TGN(9, 4, 2)
    local trainer, twin = trains(net, { rows = 1, calls = 4, optimizer = function(optim, m)
      return optim.Adam(m:parameters(), { lr = 0.01, eps = 1e-3 })
    end }, events)
    local model = poptorch.inferenceModel(net:eval())
    near({ model(table.unpack(events(5))) }, { twin:eval()(table.unpack(events(5))) },
      { 1e-5, 1e-3 })
    net:train()
    for _, buffer in ipairs(net:buffers()) do
      buffer.data:fill_(0)
    end
    trainer:copyWeightsToDevice()
    for _, buffer in ipairs(twin:train():buffers()) do
      buffer.data:fill_(0)
    end
    near({ trainer(table.unpack(events(6))) }, flat({ twin(table.unpack(events(6))) }, {}),
      { 1e-5, 1e-3 })
    model:destroy()
    trainer:destroy()
  end)
end)

-- ---- neural Bellman-Ford networks --------------------------------------------------

local Relational = nn.Module:extend("GeneralizedRelationalConv")

function Relational:init(dim, relations, pna)
  self.pna = pna
  self.linear = nn.Linear(dim * (pna and 13 or 2), dim)
  self.norm = nn.LayerNorm(dim)
  self.relation = nn.Linear(dim, relations * dim)
end

function Relational:aggregate(x, index, n)
  if not self.pna then
    return scatter(x, index, { dim = 1, dim_size = n, reduce = "sum" })
  end
  local function by(values, how)
    return scatter(values, index, { dim = 1, dim_size = n, reduce = how })
  end
  local mean = by(x, "mean")
  local std = (by(x ^ 2, "mean") - mean ^ 2):clamp({ min = 1e-6 }):sqrt()
  local features = torch.cat({ mean, std, by(x, "max"), by(x, "min") }, -1)
  local degree = torch.zeros(n):index_add(0, index, torch.ones(index:size(0)))
  local scale = degree:unsqueeze(-1):log()
  scale = scale / scale:mean()
  local scales = torch.cat({ torch.ones_like(scale), scale, 1 / scale:clamp({ min = 1e-2 }) }, -1)
  return torch.einsum("ijk, jl -> ijkl", features, scales):flatten(-2)
end

function Relational:forward(hidden, query, boundary, graph)
  local batch, n, dim = table.unpack(hidden.shape)
  local relation = self.relation(query):view(batch, -1, dim)
  local from, to, kind = table.unpack(graph:t():unbind(0))
  local message = hidden:index_select(1, from) * relation:index_select(1, kind)
  local all = torch.cat({ message, boundary }, 1)
  local out = self:aggregate(all, torch.cat({ to, torch.arange(n) }), n)
  out = F.relu(self.norm(self.linear(torch.cat({ out, hidden }, -1))))
  return hidden + out, query, boundary, graph
end

local NBFNet = nn.Module:extend("NBFNet")

function NBFNet:init(dim, relations, nodes)
  self.nodes = nodes
  self.query = nn.Embedding(relations, dim)
  self.layers = nn.ModuleList({ Relational(dim, relations, false),
    Relational(dim, relations, true) })
  self.mlp = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, 1))
  for _, layer in ipairs({ self.layers[1], self.layers[2] }) do
    layer:register_forward_hook(function(_, _, outs)
      return poptorch.recomputationCheckpoint(outs)
    end)
  end
end

function NBFNet:predicted(hidden, query, tails)
  local feature = torch.cat({ hidden, query:unsqueeze(1):expand(-1, self.nodes, -1) }, -1)
  local batch, n, dim = table.unpack(feature.shape)
  local at = (tails + torch.arange(batch):unsqueeze(-1):long() * n):flatten()
  local rows = feature:reshape(batch * n, dim):index_select(0, at)
  return self.mlp(rows:reshape(batch, -1, dim)):squeeze(-1)
end

function NBFNet:forward(graph, heads, tails, relations)
  local query, hidden, boundary
  do
    local _ <close> = poptorch.Block("preprocessing")
    graph, heads, tails, relations = graph:squeeze(0), heads:squeeze(0), tails:squeeze(0),
      relations:squeeze(0)
    query = self.query(relations)
    boundary = scatter(query:unsqueeze(1), heads:unsqueeze(-1):expand_as(query):unsqueeze(1),
      { dim = 1, dim_size = self.nodes, reduce = "sum" })
    hidden = boundary
  end
  for i = 1, #self.layers do
    local _ <close> = poptorch.Block("layer" .. i)
    hidden, query, boundary, graph = self.layers[i](hidden, query, boundary, graph)
  end
  local _ <close> = poptorch.Block("prediction")
  local scores = self:predicted(hidden, query, tails)
  local mask = heads:gt(0):unsqueeze(1)
  scores:mul_(mask)
  if not self.training then
    return scores, mask:sum()
  end
  local target = torch.zeros_like(scores)
  target[":, 0"] = 1
  local loss = F.binary_cross_entropy_with_logits(scores, target, { reduction = "none" })
  loss:mul_(mask)
  local weight
  do
    local _ <close> = torch.no_grad()
    weight = torch.cat({ torch.ones(scores:size(0), 1), F.softmax(scores[":, 1:"] / 0.5, -1) }, -1)
  end
  return mask:sum(), poptorch.identity_loss((loss * weight):sum(-1) / 2, "mean")
end

describe("neural Bellman-Ford networks", function()
  it("pass messages of relations and weigh what they take for links", function()
    torch.manual_seed(3)
    local net = NBFNet(4, 3, 6)
    local function data(call)
      torch.manual_seed(call)
      local ends, kinds = torch.randint(0, 6, { 3, 10, 2 }), torch.randint(0, 3, { 3, 10, 1 })
      return { torch.cat({ ends, kinds }, 2),
        torch.tensor({ { 1, 2, 0 }, { 3, 5, 4 }, { 1, 0, 0 } }), torch.randint(0, 6, { 3, 3, 4 }),
        torch.randint(0, 3, { 3, 3 }) }
    end
    local options = poptorch.Options()
    options:setExecutionStrategy(poptorch.PipelinedExecution(
      poptorch.Stage("preprocessing", "layer1"), poptorch.Stage("layer2", "prediction")))
    local function adam(optim, m)
      return optim.Adam(m:parameters(), { lr = 0.01, eps = 1e-3 })
    end
    local trainer = trains(net, { micro = 3, rows = 1, options = options, optimizer = adam }, data)
    trainer:destroy()
  end)
end)

-- ---- SchNet ------------------------------------------------------------------------

local SchNet = nn.Module:extend("SchNet")

function SchNet:init(hidden, gaussians, cutoff, k, graphs)
  self.cutoff, self.k, self.graphs = cutoff, k, graphs
  self.embedding = nn.Embedding(10, hidden, { padding_idx = 0 })
  self:register_buffer("offset", torch.linspace(0, cutoff, gaussians))
  self.filter = nn.Sequential(nn.Linear(gaussians, hidden), nn.Softplus(),
    nn.Linear(hidden, hidden))
  self.lin1, self.lin2 = nn.Linear(hidden, hidden, { bias = false }), nn.Linear(hidden, hidden)
  self.out = nn.Linear(hidden, 1)
end

-- The k nearest atoms of each within the same molecule: places and distances.
function SchNet:neighbours(pos, batch)
  local delta = pos:unsqueeze(0) - pos:unsqueeze(1)
  local far = (delta * delta):sum(-1)
  local other = batch:unsqueeze(0):ne(batch:unsqueeze(1)) | torch.eye(pos:size(0)):bool()
  far = torch.where(other, torch.full_like(far, self.cutoff ^ 2), far)
  local near_by, index = far:topk(self.k, 1, { largest = false })
  local target = torch.arange(pos:size(0)):unsqueeze(1):expand_as(index):flatten()
  return index:flatten(), target, near_by:flatten():sqrt()
end

function SchNet:forward(z, pos, batch, y)
  local h = self.embedding(z)
  local source, target, distance = self:neighbours(pos, batch)
  local basis = torch.exp(-0.5 * (distance:view(-1, 1) - self.offset:view(1, -1)) ^ 2)
  local cut = 0.5 * (torch.cos(distance * math.pi / self.cutoff) + 1) * distance:lt(self.cutoff)
  local w = self.filter(basis) * cut:view(-1, 1)
  local message = self.lin1(h):index_select(0, source) * w
  h = h + F.softplus(self.lin2(scatter(message, target, { dim = 0, dim_size = h:size(0) }))) -
    math.log(2.0)
  local atoms = self.out(h) * z:ne(0):view(-1, 1)
  local energy = scatter(atoms, batch, { dim = 0, dim_size = self.graphs }):view(-1)
  if not y then
    return energy
  end
  return energy, F.mse_loss(energy, y)
end

describe("SchNet", function()
  it("finds neighbours on the device, of padded molecules", function()
    torch.manual_seed(4)
    local net = SchNet(6, 5, 4.0, 3, 3)
    local function data(call)
      torch.manual_seed(call)
      local z = torch.tensor({ 6, 1, 1, 8, 7, 1, 6, 1, 0, 0 })
      return { z:repeat_(2), torch.randn(20, 3), torch.tensor({ 0, 0, 0, 0, 1, 1, 1, 1, 2, 2 })
        :repeat_(2), torch.randn(6) }
    end
    -- micro-batches of ten atoms and of three molecules
    local function parts(call)
      local t = data(call)
      return { t[1]:view(2, 10), t[2]:view(2, 10, 3), t[3]:view(2, 10), t[4]:view(2, 3) }
    end
    local forward = SchNet.forward
    local One = SchNet:extend("OneOfABatch")
    function One:forward(z, pos, batch, y)
      return forward(self, z:squeeze(0), pos:squeeze(0), batch:squeeze(0), y and y:squeeze(0))
    end
    local one = One(6, 5, 4.0, 3, 3)
    one:load_state_dict(net:state_dict())
    local trainer, twin = trains(one, { micro = 2, rows = 1, optimizer = function(optim, m)
      return optim.AdamW(m:parameters(), { lr = 0.01, eps = 1e-3 })
    end }, parts)
    local z, pos, batch = table.unpack(parts(7))
    local model = poptorch.inferenceModel(one:eval(), poptorch.Options():deviceIterations(2))
    twin:eval()
    near({ model(z, pos, batch) }, { torch.cat({ twin(z[":1"], pos[":1"], batch[":1"]),
      twin(z["1:"], pos["1:"], batch["1:"]) }) }, { 1e-5, 1e-3 })
    model:destroy()
    trainer:destroy()
  end)
end)
