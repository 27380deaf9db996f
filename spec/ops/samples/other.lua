-- Samples of random operators, updates of optimizers and markers.
local make = require("spec.ops.samples.make")
local torch = require("torch")
local x, y = make.x, make.y
local none = torch.none
local yes, no = make.b{}, make.b{}
no.values[1] = false

return {
  rand = { { { 2, 3 } } },
  randn = { { { 2, 3 } } },
  randint = { { 0, 5, { 2, 3 } } },
  randperm = { { 5 } },
  rand_like = { { x{ 2, 3 }, free = true } },
  randn_like = { { x{ 2, 3 }, free = true } },
  randint_like = { { x{ 2, 3 }, 0, 5, free = true } },
  uniform = { { x{ 2, 3 }, -1.0, 1.0 } },
  normal = { { x{ 2, 3 } } },
  log_normal = { { x{ 2, 3 } } },
  cauchy = { { x{ 2, 3 } } },
  exponential = { { x{ 2, 3 } } },
  geometric = { { x{ 2, 3 }, 0.5 } },
  bernoulli_of = { { x{ 2, 3 }, 0.5 } },
  trunc_normal = { { x{ 2, 3 } } },
  random = { { x{ 2, 3 }, 0, 10 } },
  bernoulli = { { x({ 2, 3 }, 0.1, 0.9) } },
  bernoulli_by = { { x{ 2, 3 }, x({ 2, 3 }, 0.1, 0.9), free = true } },
  normal_tensors = { { x{ 2, 3 }, y({ 2, 3 }, 0.5, 1), free = true } },
  normal_size = { { 0.0, 1.0, { 2, 3 }, free = true } },
  poisson = { { x({ 2, 3 }, 0.1, 9), kink = "a count moves by one or not at all" } },
  binomial = { { x({ 2, 3 }, 3, 9), x({ 3 }, 0.1, 0.9), kink = "as poisson" } },
  standard_gamma = { { x({ 2, 3 }, 0.3, 3), kink = "draws move by their method; the gradient is "
    .. "the distribution's, see random_by_spec" } },
  multinomial = { { x({ 2, 3 }, 0.1, 0.9), 2 } },

  sgd_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, 0.1, 0.9 } },
  nadam_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, y({ 2, 3 }, 0.1, 1), 0.1, 0.9, 0.99, 1e-3, 0.1,
    4e-3, 2, 0.25 } },
  nadam_product = { { x({ 1 }, 0.1, 1), 3, 0.9, 4e-3, loose = "rounded in between" } },
  popart_sgd_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, 0.1, 0.9 } },
  popart_sgd_combined_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, 0.1, 0.9 } },
  adam_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, y({ 2, 3 }, 0.1, 1), none, 0.1, 0.9, 0.99, 1e-8,
    0.01, 3 } },
  adamax_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, y({ 2, 3 }, 0.1, 1), 0.1, 0.9, 0.99, 1e-8,
    0.01, 3 } },
  adagrad_step = { { x{ 2, 3 }, y{ 2, 3 }, x({ 2, 3 }, 0.1, 1), none, 0.1, 1e-8 } },
  adadelta_step = { { x{ 2, 3 }, y{ 2, 3 }, x({ 2, 3 }, 0.1, 1), y({ 2, 3 }, 0.1, 1), none, 0.1,
    0.9, 1e-8 } },
  rmsprop_step = { { x{ 2, 3 }, y{ 2, 3 }, x({ 2, 3 }, 0.1, 1), none, none, 0.1, 0.9, 1e-8 } },
  lamb_step = { { x{ 2, 3 }, y{ 2, 3 }, x{ 2, 3 }, y({ 2, 3 }, 0.1, 1), 0.1, 0.9, 0.99, 1e-8, 0.01,
    3, 10.0 } },

  custom_function = { { x{ 2, 3 }, y{ 2, 3 }, script = true } }, -- not through the form
  custom = { { x{ 2, 3 }, y{ 2, 3 }, script = true, first = true } },
  custom_grad = { { x{ 2, 3 }, y{ 2, 3 }, script = true, kink = "its gradient is an error" } },
  host_call = { { x{ 2, 3 }, script = true, loud = true } }, -- the host answers
  loop = { { x{ 2, 3 }, y{ 2, 3 }, script = true } },
  branch = { { yes, x{ 2, 3 }, y{ 2, 3 }, script = true },
    { no, x{ 2, 3 }, y{ 2, 3 }, script = true } },
  call = { { x{ 2, 3 }, y{ 2, 3 }, script = true } },
  chain = { { x{ 2, 3 }, y{ 2, 3 }, script = true } },
  -- of one replica; of several: spec/popart/conformance/collectives_spec.lua
  replicated_all_reduce = { { x{ 2, 3 }, "add", 1, 1, 1, kink = "PopART has no gradient of it" } },
  replicated_reduce_scatter = { { x{ 2, 3 }, "local", 1, 1, 1 } },
  replicated_all_gather = { { x{ 2, 3 }, "local", 1, 1, 1 } },
  nop = { { x{ 2, 3 } } },
  recomputation_checkpoint = { { x{ 2, 3 } } },
  set_available_memory = { { x{ 2, 3 }, 0.5 } },
  set_overlap_for_input = { { x{ 2, 3 }, "no_overlap" } },
  set_overlap_for_output = { { x{ 2, 3 }, "no_overlap" } },
  print_tensor = { { x{ 2, 3 }, "x", false, loud = true } },
  abort_if = { { no } },
}
