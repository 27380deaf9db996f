-- PopTorch's test of the CTC beam search decoder (tests/ctc_decoder_test.py),
-- and the decoder against all alignments, against ctc_loss and against
-- a search that is written out.
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local poptorch = require("poptorch")
local torch = require("torch")
local F = torch.nn.functional

local function log_probs(...)
  return F.log_softmax(torch.randn(...) * 2, -1)
end

local function close(a, b)
  assert(math.abs(a - b) < 1e-4 or a == b, ("%.7g, expected %.7g"):format(a, b))
end

local function add(a, b)
  local high, low = math.max(a, b), math.min(a, b)
  return low == -math.huge and high or high + math.log(1 + math.exp(low - high))
end

-- Best first, of {["1 2"] = log probability}.
local function sorted(found)
  local list = {}
  for path, p in pairs(found) do
    list[#list + 1] = { path = path, p = p }
  end
  table.sort(list, function(a, b) return a.p > b.p end)
  return list
end

-- Every alignment of `steps` steps adds to the labelling that it stands for.
local function all_alignments(t, steps, blank)
  local classes, found = #t[1], {}
  local function go(step, last, path, p)
    if step > steps then
      found[path] = add(found[path] or -math.huge, p)
      return
    end
    for c = 0, classes - 1 do
      local grows = c ~= blank and c ~= last
      go(step + 1, c, grows and path .. c .. " " or path, p + t[step][c + 1])
    end
  end
  go(1, nil, "", 0)
  return sorted(found)
end

-- Prefixes by their text: {blank, label, last}.
local function search(t, steps, blank, width)
  local beams = { [""] = { blank = 0, label = -math.huge } }
  for step = 1, steps do
    local row, new = t[step], {}
    local function at(path, last)
      new[path] = new[path] or { blank = -math.huge, label = -math.huge, last = last }
      return new[path]
    end
    for path, b in pairs(beams) do
      local both, same = add(b.blank, b.label), at(path, b.last)
      same.blank = add(same.blank, both + row[blank + 1])
      for c = 0, #row - 1 do
        if c ~= blank then
          local longer = at(path .. c .. " ", c)
          longer.label = add(longer.label, (c == b.last and b.blank or both) + row[c + 1])
          if c == b.last then
            same.label = add(same.label, b.label + row[c + 1])
          end
        end
      end
    end
    local totals = {}
    for path, b in pairs(new) do
      totals[path] = add(b.blank, b.label)
    end
    beams = {}
    for i, entry in ipairs(sorted(totals)) do
      beams[entry.path] = i <= width and new[entry.path] or nil
    end
  end
  local totals = {}
  for path, b in pairs(beams) do
    totals[path] = add(b.blank, b.label)
  end
  return sorted(totals)
end

-- The results of sample n are the first of the list.
local function check(want, n, blank, probs, lengths, paths)
  for k = 0, probs.shape[2] - 1 do
    local entry, labels = want[k + 1] or { path = "", p = -math.huge }, {}
    for label in entry.path:gmatch("%d+") do
      labels[#labels + 1] = tonumber(label)
    end
    close(probs[n][k]:item(), entry.p)
    assert.equal(#labels, lengths[n][k]:item())
    local got = paths[n][k]:tolist()
    for i = 1, #got do
      assert.equal(labels[i] or blank, got[i])
    end
  end
end

local function decoder(blank, width, paths)
  return function(probs, lengths)
    return poptorch.ctc_beam_search_decoder(probs, lengths, blank, width, paths)
  end
end

describe("ctc_decoder", function()
  it("test_ctc_decoder", function()
    torch.manual_seed(42)
    local probs = torch.randn(9, 3, 10)
    local lengths = torch.randint(5, 9, { 3 }, { dtype = torch.int })
    local p, n, path = device.infer(function(x, l)
      return poptorch.ctc_beam_search_decoder(x, l)
    end)(probs, lengths)
    assert.same({ { 3, 1 }, { 3, 1 }, { 3, 1, 9 } },
      { { table.unpack(p.shape) }, { table.unpack(n.shape) }, { table.unpack(path.shape) } })
    assert.equal(torch.int32, n.dtype)
    assert.equal(torch.int32, path.dtype)
  end)
end)

describe("the beam search", function()
  it("finds the most probable labellings of all alignments, if it may keep every prefix", function()
    torch.manual_seed(7)
    for _, case in ipairs({ { 5, 3, 0 }, { 4, 4, 2 }, { 6, 2, 1 } }) do
      local steps, classes, blank = table.unpack(case)
      local probs, lengths = log_probs(steps, 2, classes), torch.tensor({ steps, steps - 2 })
      local results = { decoder(blank, 1000, 8)(probs, lengths) }
      device.close({ device.infer(decoder(blank, 1000, 8))(probs, lengths) },
        { results[1], results[2], results[3] })
      for n = 0, 1 do
        local t = probs[{ torch.slice(), n }]:tolist()
        check(all_alignments(t, lengths[n]:item(), blank), n, blank, table.unpack(results))
      end
    end
  end)

  it("knows the probability that ctc_loss gives a labelling", function()
    torch.manual_seed(8)
    local probs, lengths = log_probs(12, 3, 5), torch.tensor({ 12, 9, 12 })
    local p, n, path = decoder(0, 4000, 1)(probs, lengths)
    for i = 0, 2 do
      local labels = path[i][0][("0:%d"):format(n[i][0]:item())]
      local loss = F.ctc_loss(probs[("0:%d, %d:%d"):format(lengths[i]:item(), i, i + 1)],
        labels:unsqueeze(0):long(), torch.tensor({ lengths[i]:item() }),
        torch.tensor({ n[i][0]:item() }), { reduction = "sum" })
      close(p[i][0]:item(), -loss:item())
    end
  end)

  it("keeps the best prefixes of every step", function()
    torch.manual_seed(9)
    for _, width in ipairs({ 1, 2, 5, 20 }) do
      local probs, lengths = log_probs(15, 2, 6), torch.tensor({ 15, 11 })
      local paths = math.min(width, 3)
      local results = { decoder(1, width, paths)(probs, lengths) }
      for n = 0, 1 do
        local t = probs[{ torch.slice(), n }]:tolist()
        check(search(t, lengths[n]:item(), 1, width), n, 1, table.unpack(results))
      end
    end
  end)

  it("knows a prefix again that was among the best before, and its children", function()
    torch.manual_seed(11)
    for _, width in ipairs({ 3, 4 }) do
      local probs = (torch.randn(8, 150, 3) * 2):log_softmax(2)
      local results = { decoder(0, width, 2)(probs, torch.full({ 150 }, 8)) }
      for n = 0, 149 do
        local t = probs[{ torch.slice(), n }]:tolist()
        check(search(t, 8, 0, width), n, 0, table.unpack(results))
      end
    end
  end)

  it("prefers of equal ones the prefix that stays, then the lower label", function()
    local probs = torch.full({ 1, 1, 4 }, math.log(0.25))
    for width = 1, 4 do
      local _, n, path = decoder(1, width, width)(probs, torch.tensor({ 1 }))
      local want = { 1, 0, 2, 3 } -- of which 1 is the blank
      for k = 0, width - 1 do
        assert.equal(k == 0 and 0 or 1, n[0][k]:item())
        assert.equal(want[k + 1], path[0][k][0]:item())
      end
    end
  end)

  it("has empty paths where there are no labellings", function()
    local probs = torch.tensor({ { { 0.0, -math.huge } } })
    local p, n, path = decoder(0, 4, 3)(probs, torch.tensor({ 1 }))
    assert.same({ { 0, -math.huge, -math.huge } }, p:tolist())
    assert.same({ { 0, 0, 0 } }, n:tolist())
    assert.same({ { { 0 }, { 0 }, { 0 } } }, path:tolist())
    p = decoder(0, 4, 1)(log_probs(3, 1, 2), torch.tensor({ 0 }))
    assert.equal(0, p:item())
  end)

  it("takes halves and doubles", function()
    torch.manual_seed(10)
    local probs, lengths = log_probs(6, 1, 3), torch.tensor({ 6 })
    local want = { decoder(0, 50, 2)(probs, lengths) }
    for _, dtype in ipairs({ torch.half, torch.double }) do
      local got = { decoder(0, 50, 2)(probs:to(dtype), lengths) }
      assert.equal(dtype, got[1].dtype)
      device.close({ got[1]:float() }, { want[1] }, { atol = 0.02, rtol = 0.01 })
    end
  end)

  it("refuses other arguments", function()
    local probs, lengths = log_probs(4, 2, 3), torch.tensor({ 4, 4 })
    for _, args in ipairs({ { 3, lengths }, { probs, 3 }, { probs[0], lengths },
      { probs:long(), lengths }, { probs, torch.tensor({ 4.0, 4.0 }) },
      { probs, torch.tensor({ 4 }) }, { probs, torch.tensor(4) },
      { probs, lengths, 3 }, { probs, lengths, -1 }, { probs, lengths, 0, 0 },
      { probs, lengths, 0, 2, 3 }, { probs, lengths, 0, 2, 0 }, { probs, lengths, 0.5 },
      { probs, lengths, 0, "2" }, { probs, torch.tensor({ 5, 4 }) },
      { probs, torch.tensor({ 4, -1 }) } }) do
      raises("Error", poptorch.ctc_beam_search_decoder, table.unpack(args))
    end
    assert.matches("too many", raises("OutOfMemoryError", poptorch.ctc_beam_search_decoder, probs,
      lengths, 0, 1 << 40).message)
    raises("RuntimeError", function()
      poptorch.ctc_beam_search_decoder(probs:clone():requires_grad_(true), lengths):sum():backward()
    end)
  end)
end)
