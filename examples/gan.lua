-- A generative adversarial network (Goodfellow et al., 2014) learns where points of the
-- plane lie: eight places on a circle. Two optimizers take turns in a loop that is written
-- out. runs/gan trains the same pair from a run file, where one optimizer updates both.
local torch = require("torch")

local here = arg[0]:match("^.*/") or ""
local flags = dofile(here .. "runs/flags.lua")({ steps = 3000 })
local data = dofile(here .. "runs/gan/data.lua")
local gan = dofile(here .. "runs/gan/model.lua")

local BATCH = 256
torch.manual_seed(1)
local real = data.points(20000, 1).tensors[1]
local model = gan.GAN(2, 64)
local G, D = model.generator, model.discriminator
local of_g = torch.optim.Adam(G:parameters(), { lr = 1e-3, betas = { 0.5, 0.9 } })
local of_d = torch.optim.Adam(D:parameters(), { lr = 1e-3, betas = { 0.5, 0.9 } })

for step = 1, flags.steps do
  local x = real[torch.randint(0, #real, { BATCH })]
  local made = model:make(BATCH)
  of_d:zero_grad()
  local d_loss = gan.judged(D(x), true) + gan.judged(D(made:detach()), false)
  d_loss:backward()
  of_d:step()
  of_g:zero_grad() -- D's gradients of this are dropped by its zero_grad above
  local g_loss = gan.judged(D(made), true)
  g_loss:backward()
  of_g:step()
  if step % 500 == 0 then
    print(("step %d  discriminator %.2f  generator %.2f"):format(step, d_loss:item(),
      g_loss:item()))
  end
end

local made = model:make(4000):detach()
if flags.picture then
  gan.show(real:narrow(0, 0, 4000), made, flags.picture)
end
print(("gan: found=%d near=%.2f"):format(gan.score(made, data.middles(), data.deviation)))
