--- Models of text that people start from, by the class names, configurations and state_dict
--- keys of the package transformers, so that public checkpoints load: `load_state_dict` of a
--- safetensors file, or `Class:from_pretrained(folder)`. Nothing is downloaded.
local namespace = require("lupine.base.namespace")

local M = {}

for _, name in ipairs({ "bert", "gpt2" }) do
  local family = require("lupine.models." .. name)
  for key, value in next, family do
    M[key] = value
  end
end

return namespace.close(M, "lupine.models")
