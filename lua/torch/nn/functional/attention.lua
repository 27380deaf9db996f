--- Attention with several heads and projections.
---
--- A boolean mask says where a key does not take part (the operator
--- scaled_dot_product_attention has it the other way round); a float mask is
--- added to the scores.
---
--- source: Vaswani et al. 2017; PyTorch documentation of both functions
local check = require("lupine.base.check")
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

-- Minus infinity where `hidden` is true.
local function additive(hidden, dtype)
  local torch = require("torch")
  return torch.zeros(hidden.shape, { dtype = dtype }):masked_fill(hidden, -math.huge)
end

-- Weights and result of attention over the last two dimensions.
local function attend(F, q, k, v, mask, dropout, scale)
  local scores = (q * scale):matmul(k:transpose(-2, -1))
  if mask then
    scores = scores + mask
  end
  local weights = F.softmax(scores, -1)
  if dropout > 0 then
    weights = F.dropout(weights, dropout, true)
  end
  return weights:matmul(v), weights
end

local function text(sizes)
  return "(" .. table.concat(sizes, ", ") .. ")"
end

-- error: RuntimeError for a mask of none of the shapes
local function check_mask(name, mask, allowed)
  local got, shown = mask and text(mask.shape), {}
  for i, sizes in ipairs(allowed) do
    shown[i] = text(sizes)
    if got == shown[i] then
      return
    end
  end
  errors.check(not mask, "RuntimeError", "multi_head_attention_forward: %s must have shape %s, "
    .. "got %s", name, table.concat(shown, " or "), got)
end

return function(F)
  local M = {}

  -- A mask of the longer form, with zeros for keys that were added.
  local function canonical(mask, dtype, added)
    if not mask then
      return nil
    end
    local torch = require("torch")
    if mask.dtype == torch.bool then
      mask = additive(mask, dtype)
    end
    return added > 0 and F.pad(mask, { 0, added }) or mask
  end

  local function project(a)
    local torch = require("torch")
    local w = a.separate and { a.q_weight, a.k_weight, a.v_weight }
      or a.weight:chunk(3, 0)
    local b = a.bias and a.bias:chunk(3, 0) or {}
    local q, k, v = F.linear(a.query, w[1], b[1]), F.linear(a.key, w[2], b[2]),
      F.linear(a.value, w[3], b[3])
    if a.bias_k then
      local n = k:size(1)
      k = torch.cat({ k, a.bias_k:expand({ 1, n, -1 }) }, 0)
      v = torch.cat({ v, a.bias_v:expand({ 1, n, -1 }) }, 0)
    end
    return q, k, v
  end

  -- [L, N, heads * d] -> [N * heads, L, d]
  local function split_heads(x, n, heads)
    return x:reshape({ x:size(0), n * heads, x:size(2) // heads }):transpose(0, 1)
  end

  local function merge_masks(a, n, heads, added)
    local dtype = a.query.dtype
    local mask = canonical(a.attn_mask, dtype, added)
    local padding = canonical(a.key_padding_mask, dtype, added)
    if not padding then
      return mask
    end
    local s = padding:size(-1)
    padding = padding:reshape({ n, 1, 1, s }):expand({ -1, heads, -1, -1 })
      :reshape({ n * heads, 1, s })
    return mask and mask + padding or padding
  end

  local function batched(a, heads)
    local torch = require("torch")
    local length, n, size = a.query:size(0), a.query:size(1), a.query:size(2)
    local q, k, v = project(a)
    q, k, v = split_heads(q, n, heads), split_heads(k, n, heads), split_heads(v, n, heads)
    local added = (a.bias_k and 1 or 0) + (a.zero and 1 or 0)
    if a.zero then
      local none = torch.zeros({ k:size(0), 1, k:size(2) }, { dtype = k.dtype })
      k, v = torch.cat({ k, none }, 1), torch.cat({ v, none }, 1)
    end
    local mask, dropout = nil, a.training and a.dropout or 0
    if not a.causal then
      mask = merge_masks(a, n, heads, added)
    end
    local out, weights
    if a.need_weights then
      out, weights = attend(F, q, k, v, mask, dropout, 1 / math.sqrt(q:size(2)))
      weights = weights:reshape({ n, heads, length, weights:size(2) })
    else
      out = F.scaled_dot_product_attention(q, k, v, mask, dropout, a.causal)
    end
    out = out:transpose(0, 1):reshape({ length, n, size })
    return F.linear(out, a.out_weight, a.out_bias), weights
  end

  define(M, "multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, "
    .. "in_proj_weight=None, in_proj_bias=None, bias_k=None, bias_v=None, add_zero_attn=False, "
    .. "dropout_p=0.0, out_proj_weight=None, out_proj_bias=None, training=True, "
    .. "key_padding_mask=None, need_weights=True, attn_mask=None, "
    .. "use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, "
    .. "v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, "
    .. "is_causal=False)",
    function(query, key, value, size, heads, weight, bias, bias_k, bias_v, zero, dropout,
             out_weight, out_bias, training, key_padding_mask, need_weights, attn_mask, separate,
             q_weight, k_weight, v_weight, static_k, static_v, average, is_causal)
      errors.check(not (static_k or static_v), "NotImplementedError",
        "multi_head_attention_forward: static_k and static_v are not available")
      errors.check(not is_causal or attn_mask, "RuntimeError",
        "Need attn_mask if specifying the is_causal hint.")
      check.int(size, "multi_head_attention_forward(): embed_dim_to_check")
      check.int(heads, "multi_head_attention_forward(): num_heads", { min = 1 })
      errors.check(query:size(-1) == size, "AssertionError",
        "was expecting embedding dimension of %d, but got %d", size, query:size(-1))
      errors.check(size % heads == 0, "AssertionError", "embed_dim %d not divisible by num_heads "
        .. "%d", size, heads)
      local single = query:dim() == 2
      if single then
        query, key, value = query:unsqueeze(1), key:unsqueeze(1), value:unsqueeze(1)
      end
      local length, n, keys = query:size(0), query:size(1), key:size(0)
      check_mask("key_padding_mask", key_padding_mask, single and { { keys }, { 1, keys } }
        or { { n, keys } })
      check_mask("attn_mask", attn_mask, { { length, keys }, { n * heads, length, keys } })
      local out, weights = batched({
        query = query, key = key, value = value, weight = weight, bias = bias, bias_k = bias_k,
        bias_v = bias_v, zero = zero, dropout = dropout, out_weight = out_weight,
        out_bias = out_bias, training = training, key_padding_mask = key_padding_mask,
        attn_mask = attn_mask, separate = separate, q_weight = q_weight, k_weight = k_weight,
        v_weight = v_weight, need_weights = need_weights,
        -- the hint stands for the mask, and for the keys that are added too
        causal = is_causal and not need_weights and not key_padding_mask,
      }, heads)
      if not need_weights then
        return single and out:squeeze(1) or out, nil
      end
      weights = average and weights:mean(1) or weights
      if single then
        return out:squeeze(1), weights:squeeze(0)
      end
      return out, weights
    end)

  return M
end
