--- Whatever is called with whatever: an error is one of the library's classes, and
--- speaks of no operator that scripts cannot call.
describe("a wrong call", function()
  local core = require("lupine.core")
  local errors = require("lupine.base.errors")
  local torch = require("torch")

  local SPACES = { torch = torch, F = torch.nn.functional, linalg = torch.linalg,
    special = torch.special, method = core.methods }
  -- They change the process, or write files.
  local SKIPPED = {}
  for name in ([[autocast backward enable_grad inference_mode load manual_seed no_grad save seed
    set_anomaly_enabled set_autocast set_default_device set_default_dtype set_default_tensor_type
    set_float32_matmul_precision set_grad_enabled set_num_threads set_printoptions set_rng_state
    use_deterministic_algorithms]]):gmatch("%S+") do
    SKIPPED[name] = true
  end

  local function cases()
    local x, long = torch.ones(2, 3), torch.ones(2, 3):long()
    return { {}, { x, "x" }, { x, torch.ones(4, 5), torch.ones(7) }, { x, -9, 99 },
      { x:int(), torch.ones(4, 5):bool() }, { { torch.ones(2), torch.ones(3, 3) } },
      { x, { 1, "x" } }, { x, 0, long, 5 }, { x, x, x, "x" } }
  end

  -- Operators that no name of a space calls.
  local function internal()
    local public, names = {}, {}
    for _, space in pairs(SPACES) do
      for name in pairs(space) do
        public[name] = true
      end
    end
    for _, op in ipairs(core.ops()) do
      local word = op.name or op -- plain words speak of other things
      names[word] = word:find("_", 1, true) and not public[word] and not public[word .. "_"] or nil
    end
    return names
  end

  -- What each call of a function raises, as `look` sees it.
  local function sweep(look)
    local functions = {}
    for name in pairs(torch) do
      functions[name] = true
    end
    for space, names in pairs(SPACES) do
      for name, f in pairs(names) do
        if type(name) == "string" and type(f) == "function" and not SKIPPED[name]
          and not name:find("^_") and not (space == "method" and functions[name]) then
          for _, arguments in ipairs(cases()) do
            local ok, e = pcall(f, table.unpack(arguments))
            if not ok then
              look(space .. "." .. name, e)
            end
          end
        end
      end
    end
  end

  it("is an error of a class, of names that scripts know", function()
    local hidden, raised, bad, seen = internal(), 0, {}, {}
    sweep(function(where, e)
      raised = raised + 1
      if not errors.Exception:is(e) then
        bad[#bad + 1] = where .. ": " .. tostring(e)
        return
      end
      local words = seen[e.message] and "" or e.message
      seen[e.message] = true
      for word in words:gmatch("%a[%w]*_[%w_]*") do
        bad[#bad + 1] = hidden[word] and where .. ": " .. e.message or nil
      end
    end)
    assert.same({}, bad)
    assert.truthy(raised > 2000)
  end)
end)
