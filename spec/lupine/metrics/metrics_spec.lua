-- Metrics of hand-made cases, by the definitions of scikit-learn's documentation, and of
-- random ones against loops over elements.
local helper = require("spec.helper")
local metrics = require("lupine.metrics")
local torch = require("torch")

local function near(want, got)
  assert.is_true(math.abs(want - got) < 1e-9 * math.max(1, math.abs(want)),
    ("expected %.12g, got %.12g"):format(want, got))
end

local function is_nan(x)
  return x ~= x
end

-- Scores [n, c] and classes [n] as Lua tables too.
local function random_case(n, c)
  local scores, target = torch.randn({ n, c }), torch.randint(0, c, { n })
  return scores, target, scores:tolist(), target:tolist()
end

-- Decisions by loops.
local function decide(rows)
  local out = {}
  for i, row in ipairs(rows) do
    local best = 1
    for k = 2, #row do
      best = row[k] > row[best] and k or best
    end
    out[i] = best - 1
  end
  return out
end

local function counts_of(decided, due, c)
  local counts = {}
  for t = 0, c - 1 do
    counts[t] = {}
    for p = 0, c - 1 do
      counts[t][p] = 0
    end
  end
  for i, t in ipairs(due) do
    counts[t][decided[i]] = counts[t][decided[i]] + 1
  end
  return counts
end

-- F1 by its formula from counts, for each class that occurs.
local function f1_of(counts, c)
  local f1, due, sum_tp, sum = {}, {}, 0, 0
  for k = 0, c - 1 do
    local tp, fp, fn = counts[k][k], 0, 0
    for j = 0, c - 1 do
      fp = fp + (j ~= k and counts[j][k] or 0)
      fn = fn + (j ~= k and counts[k][j] or 0)
    end
    if tp + fp + fn > 0 then
      f1[#f1 + 1], due[#due + 1] = 2 * tp / (2 * tp + fp + fn), tp + fn
    end
    sum_tp, sum = sum_tp + tp, sum + tp + fn
  end
  local macro, weighted = 0, 0
  for i, value in ipairs(f1) do
    macro, weighted = macro + value / #f1, weighted + value * due[i] / sum
  end
  return { macro = macro, weighted = weighted, micro = sum_tp / sum }
end

describe("metrics of classifiers", function()
  it("agree with loops over random cases", function()
    torch.manual_seed(1)
    for _, c in ipairs({ 3, 7 }) do
      local all = { accuracy = metrics.Accuracy(), top2 = metrics.TopK(2),
        confusion = metrics.ConfusionMatrix(), macro = metrics.F1({ average = "macro" }),
        micro = metrics.F1({ average = "micro" }), weighted = metrics.F1({ average = "weighted" }) }
      local decided, due, top = {}, {}, 0
      for _, n in ipairs({ 1, 13, 40 }) do
        local scores, target, rows, classes = random_case(n, c)
        for _, metric in pairs(all) do
          metric:update(scores, target)
        end
        table.move(decide(rows), 1, n, #decided + 1, decided)
        for i, t in ipairs(classes) do
          due[#due + 1] = t
          local above = 0
          for k = 1, c do
            above = above + (rows[i][k] > rows[i][t + 1] and 1 or 0)
          end
          top = top + (above < 2 and 1 or 0)
        end
      end
      local counts, right = counts_of(decided, due, c), 0
      for k = 0, c - 1 do
        right = right + counts[k][k]
        for j = 0, c - 1 do
          assert.equal(counts[k][j], all.confusion:compute()[k][j]:item())
        end
      end
      near(right / #due, all.accuracy:compute())
      near(top / #due, all.top2:compute())
      local want = f1_of(counts, c)
      for _, average in ipairs({ "macro", "micro", "weighted" }) do
        near(want[average], all[average]:compute())
      end
    end
  end)

  it("have the values of hand-made cases", function()
    -- true 0 1 2 0 1 2, taken for 0 2 1 0 0 1 (the example of f1_score's documentation)
    local due, taken = torch.tensor({ 0, 1, 2, 0, 1, 2 }), torch.tensor({ 0, 2, 1, 0, 0, 1 })
    for average, want in pairs({ macro = 0.8 / 3, micro = 1 / 3, weighted = 0.8 / 3 }) do
      local f1 = metrics.F1({ average = average, num_classes = 3 })
      f1:update(taken, due)
      near(want, f1:compute())
    end
    local accuracy = metrics.Accuracy()
    accuracy:update(taken, due)
    near(1 / 3, accuracy:compute())
    local binary = metrics.F1()
    binary:update(torch.tensor({ 0.5, -1.0, 2.0, 0.1 }), torch.tensor({ 1, 1, 0, 1 }))
    near(2 / 3, binary:compute()) -- tp 2, fp 1, fn 1
  end)

  it("know classes in dimension 1, in the last one, and single logits", function()
    torch.manual_seed(2)
    local scores, target = torch.randn({ 4, 5, 3, 2 }), torch.randint(0, 5, { 4, 3, 2 })
    local want = scores:argmax(1):eq(target):float():mean():item()
    for _, form in ipairs({ scores, scores:movedim(1, -1) }) do
      local accuracy = metrics.Accuracy()
      accuracy:update(form, target)
      assert.is_true(math.abs(want - accuracy:compute()) < 1e-6)
    end
    local accuracy = metrics.Accuracy({ threshold = 0.5 })
    accuracy:update(torch.tensor({ { 0.6 }, { 0.4 }, { 0.9 } }), torch.tensor({ 1.0, 1.0, 0.0 }))
    near(1 / 3, accuracy:compute())
  end)

  it("leave a class out", function()
    local scores = torch.tensor({ { 2.0, 1.0 }, { 1.0, 2.0 }, { 3.0, 1.0 } })
    local target = torch.tensor({ 0, -1, 1 })
    local accuracy, top = metrics.Accuracy({ ignore_index = -1 }),
      metrics.TopK(1, { ignore_index = -1 })
    local confusion = metrics.ConfusionMatrix({ ignore_index = -1 })
    for _, metric in ipairs({ accuracy, top, confusion }) do
      metric:update(scores, target)
    end
    assert.same({ 0.5, 0.5 }, { accuracy:compute(), top:compute() })
    assert.same({ { 1, 0 }, { 1, 0 } }, confusion:compute():tolist())
  end)

  it("are NaN before the first decision, and begin anew", function()
    local accuracy = metrics.Accuracy()
    assert.is_true(is_nan(accuracy:compute()))
    accuracy:update(torch.eye(2), torch.tensor({ 0, 0 }))
    assert.equal(0.5, accuracy:compute())
    accuracy:reset()
    assert.is_true(is_nan(accuracy:compute()))
    assert.is_true(is_nan(metrics.F1():compute()))
    assert.is_nil(metrics.ConfusionMatrix():compute())
  end)

  it("say what does not fit", function()
    local function refused(pattern, fn)
      local ok, e = pcall(fn)
      assert.is_false(ok)
      assert.matches(pattern, e.message)
    end
    refused("expected an output %[N, C", function()
      metrics.Accuracy():update(torch.zeros({ 4, 3 }), torch.zeros({ 5 }))
    end)
    refused("target: classes are 0 to 2, got 0 to 3", function()
      metrics.ConfusionMatrix():update(torch.zeros({ 2, 3 }), torch.tensor({ 0, 3 }))
    end)
    refused("num_classes: outputs that are decisions", function()
      metrics.F1():update(torch.tensor({ 0, 1 }), torch.tensor({ 0, 1 }))
    end)
    refused("average: allowed are binary", function()
      metrics.F1({ average = "mean" })
    end)
    refused("no metric 'acuracy' %(nearest: 'accuracy'%)", function()
      metrics.named("acuracy")
    end)
  end)
end)

describe("metrics of numbers", function()
  it("take weighted means", function()
    local mean = metrics.Mean()
    mean:update(1)
    mean:update(torch.tensor({ 2.0, 4.0 }), 3)
    near((1 + 9) / 4, mean:compute())
  end)

  it("have perplexities by the formula", function()
    torch.manual_seed(3)
    local perplexity = metrics.Perplexity()
    local sum, n = 0, 0
    for _, length in ipairs({ 5, 2 }) do
      local scores, target = torch.randn({ 3, length, 6 }), torch.randint(0, 6, { 3, length })
      target[0][0] = -100
      perplexity:update(scores, target)
      for b = 0, 2 do
        for t = 0, length - 1 do
          local class, total = target[b][t]:item(), 0
          for c = 0, 5 do
            total = total + math.exp(scores[b][t][c]:item())
          end
          if class >= 0 then
            sum, n = sum + math.log(total) - scores[b][t][class]:item(), n + 1
          end
        end
      end
    end
    near(math.exp(sum / n), perplexity:compute())
  end)

  it("compare tensors only", function()
    local perplexity = metrics.Perplexity({ shift = true })
    helper.refuses("TypeError", "output: expected a tensor, got", perplexity.update, perplexity, 3,
      torch.zeros({ 1, 2 }))
    helper.refuses("TypeError", "target: expected a tensor, got", perplexity.update, perplexity,
      torch.zeros({ 1, 2, 2 }), {})
  end)

  it("compare outputs with the next token", function()
    torch.manual_seed(6)
    local logits, tokens = torch.randn({ 2, 5, 7 }), torch.randint(0, 7, { 2, 5 })
    tokens[1][4] = -100
    for name, plain in pairs({ accuracy_next = metrics.Accuracy({ ignore_index = -100 }),
      perplexity_next = metrics.Perplexity() }) do
      local shifted = metrics.named(name)
      shifted:update(logits, tokens)
      plain:update(logits[":, :4"], tokens[":, 1:"])
      near(plain:compute(), shifted:compute())
    end
    assert.has_error(function()
      metrics.named("perplexity_next"):update(logits, tokens[":, 0"])
    end)
  end)

  it("have errors of regressions by the formulas", function()
    torch.manual_seed(4)
    local all, xs, ts = {}, {}, {}
    for _, kind in ipairs({ "mse", "rmse", "mae", "r2" }) do
      all[kind] = metrics.named(kind)
    end
    for _, n in ipairs({ 3, 10, 1 }) do
      local x, t = torch.randn({ n, 2 }), torch.randn({ n, 2 }) * 3 + 100
      for _, metric in pairs(all) do
        metric:update(x, t)
      end
      for i = 0, n - 1 do
        for k = 0, 1 do
          xs[#xs + 1], ts[#ts + 1] = x[i][k]:item(), t[i][k]:item()
        end
      end
    end
    local mse, mae, mean, around = 0, 0, 0, 0
    for i, t in ipairs(ts) do
      mse, mae, mean = mse + (xs[i] - t) ^ 2 / #ts, mae + math.abs(xs[i] - t) / #ts, mean + t / #ts
    end
    for _, t in ipairs(ts) do
      around = around + (t - mean) ^ 2 / #ts
    end
    near(mse, all.mse:compute())
    near(math.sqrt(mse), all.rmse:compute())
    near(mae, all.mae:compute())
    near(1 - mse / around, all.r2:compute())
  end)
end)

describe("states of metrics", function()
  it("go on where they were", function()
    torch.manual_seed(5)
    local cases = {}
    for i = 1, 4 do
      cases[i] = { torch.randn({ 6, 4 }), torch.randint(0, 4, { 6 }) }
    end
    for _, name in ipairs({ "accuracy", "top2", "f1", "f1_micro", "confusion", "perplexity" }) do
      local whole, part = metrics.named(name), metrics.named(name)
      for i = 1, 4 do
        whole:update(table.unpack(cases[i]))
      end
      for i = 1, 2 do
        part:update(table.unpack(cases[i]))
      end
      local path = os.tmpname()
      torch.save(part:state_dict(), path)
      local rest = metrics.named(name)
      rest:load_state_dict(torch.load(path))
      os.remove(path)
      for i = 3, 4 do
        rest:update(table.unpack(cases[i]))
      end
      assert.equal(tostring(whole:compute()), tostring(rest:compute()))
    end
  end)
end)
