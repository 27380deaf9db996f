--- Hostile inputs of every reader of outside data, in a process that has 64 MB
--- more than lupine itself needs and a tenth of a second for each input.
local program = require("spec.support.program")

local READERS = {
  "checkpoint",
  "csv",
  "executable",
  "faults",
  "graph_text",
  "idx",
  "ipu_record",
  "jpeg",
  "json",
  "load",
  "npy",
  "npz",
  "onnx",
  "options_file",
  "options_json",
  "png",
  "safetensors",
  "tokenizer",
}

local MEMORY = 64 * 1024 -- kilobytes
local SECONDS = 0.3

-- Sanitizers reserve address space that no limit may stop.
local sanitized = program.shell("ldd " .. program.host):find("libasan", 1, true)

local function child(limits, arguments)
  return program.shell(("%s OMP_NUM_THREADS=1 exec %s spec/hostile/run.lua %s"):format(limits,
    program.host, arguments))
end

describe("the reader", function()
  for _, name in ipairs(READERS) do
    it(name .. " answers hostile inputs with errors, in little time and memory", function()
      local own = tonumber((child("", "")))
      local reader = require("spec.hostile." .. name)
      local inputs = #reader.refused + #(reader.taken or {})
      for _, bytes in ipairs(reader.valid) do
        inputs = inputs + #bytes + 1
      end
      local limits = sanitized and "" or ("ulimit -v %d;"):format(own + MEMORY)
      local out, err, code = child(limits, name .. " " .. SECONDS * (sanitized and 5 or 1))
      assert.equal("", err)
      assert.equal(inputs .. " inputs\n", out)
      assert.equal(0, code)
    end)
  end
end)
