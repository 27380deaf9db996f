-- torch.optim.swa_utils: averages by hand, rates by PyTorch 2.15.
local helper = require("spec.helper")
local torch = require("torch")
local nn, swa = torch.nn, torch.optim.swa_utils

describe("AveragedModel", function()
  -- the weights 1, 2, 3, 4 one after another
  local function averaged(options)
    local model = nn.Linear(1, 1, false)
    local average = swa.AveragedModel(model, options)
    for i = 1, 4 do
      torch.no_grad(function()
        model.weight:fill_(i)
      end)
      average:update_parameters(model)
    end
    assert.equal(4, average.n_averaged:item())
    return average(torch.ones(1, 1))
  end

  it("holds the mean, or an exponential average", function()
    local ema = ((1 * 0.9 + 0.2) * 0.9 + 0.3) * 0.9 + 0.4
    helper.near(averaged(), { { 2.5 } })
    helper.near(averaged({ multi_avg_fn = swa.get_ema_multi_avg_fn(0.9) }), { { ema } })
    helper.near(averaged({ avg_fn = swa.get_ema_avg_fn(0.9) }), { { ema } })
    helper.near(averaged({ avg_fn = swa.get_swa_avg_fn() }), { { 2.5 } })
  end)

  it("refuses two functions, and decays beyond 1", function()
    helper.raises("AssertionError", "Only one of", function()
      averaged({ avg_fn = swa.get_swa_avg_fn(), multi_avg_fn = swa.get_swa_multi_avg_fn() })
    end)
    helper.raises("ValueError", "%[0,1%] range", function()
      swa.get_ema_multi_avg_fn(1.5)
    end)
  end)
end)

describe("update_bn", function()
  it("averages the statistics of all batches", function()
    local model = nn.Sequential(nn.BatchNorm1d(1)):eval()
    swa.update_bn({ torch.tensor({ { 1.0 }, { 3 } }), torch.tensor({ { 5.0 }, { 9 } }) }, model)
    helper.near(model[1].running_mean, { (2 + 7) / 2 })
    helper.near(model[1].running_var, { (2 + 8) / 2 })
    assert.equal(0.1, model[1].momentum)
    assert.is_false(model.training)
  end)
end)

describe("SWALR", function()
  it("anneals to its rate and stays there", function()
    for strategy, want in pairs({ cos = { 1, 0.868198, 0.55, 0.231802, 0.1, 0.1 },
      linear = { 1, 0.775, 0.55, 0.325, 0.1, 0.1 } }) do
      local opt = torch.optim.SGD({ torch.ones(1, { requires_grad = true }) }, { lr = 1.0 })
      local s, got = swa.SWALR(opt, 0.1, 4, strategy), {}
      for i = 1, 6 do
        got[i] = opt.param_groups[1].lr
        opt:step()
        s:step()
      end
      helper.near(torch.tensor(got), want, { 1e-6, 0 })
    end
  end)

  it("counts its own steps when it is taken up", function() -- PyTorch's rates
    local opt = torch.optim.SGD({ torch.ones(1, { requires_grad = true }) }, { lr = 1.0 })
    local s, got = swa.SWALR(opt, 0.1, 4), {}
    for i = 1, 5 do
      if i == 3 then
        s = swa.SWALR(opt, { swa_lr = 0.1, anneal_epochs = 4, last_epoch = s.last_epoch })
      end
      if i > 2 then
        got[i] = opt.param_groups[1].lr
      end
      opt:step()
      s:step()
      got[i] = got[i] or opt.param_groups[1].lr
    end
    helper.near(torch.tensor(got), { 0.868198, 0.55, 0.55, 0.484099, 0.325 }, { 1e-6, 0 })
  end)
end)
