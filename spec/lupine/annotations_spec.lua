--- The annotations for editors: Lua that parses, every form, method and
--- function of the core in it, tags as lua-language-server documents them.
local annotations = require("lupine.annotations")
local core = require("lupine.core")
local signatures = require("lupine.base.signatures")
local torch = require("torch")

describe("the annotations", function()
  local files, chunk_of = annotations.files(), {}

  -- Runs a file; what its locals were is told through `return`.
  local function run(name, result)
    local text = files[name]:gsub("return [%w_]+%s*$", "return " .. result)
    return assert(load(text, "=" .. name, "t", { require = require }))()
  end

  setup(function()
    for name in pairs(files) do
      chunk_of[name] = assert(load(files[name], "=" .. name, "t"))
    end
  end)

  it("are two modules that parse", function()
    assert.is_function(chunk_of["torch.lua"])
    assert.is_function(chunk_of["torch/nn/functional.lua"])
    assert.matches("^%-%-%-@meta torch\n", files["torch.lua"])
    assert.matches("^%-%-%-@meta torch%.nn%.functional\n", files["torch/nn/functional.lua"])
  end)

  it("have every form, under every name that it has", function()
    local t, methods = run("torch.lua", "torch, Tensor")
    local functional = run("torch/nn/functional.lua", "functional")
    local places = { ["function"] = t, nn = functional, special = t.special, linalg = t.linalg,
      method = methods, inplace = methods }
    local text = files["torch.lua"] .. files["torch/nn/functional.lua"]
    local n = 0
    for _, form in ipairs(core.form_list()) do
      for flag, place in pairs(places) do
        local name = flag == "inplace" and form.name .. "_" or form.name
        local values = flag == "nn" and core.forms.nn or flag == "function" and core.forms.functions
        if form[flag] and (not values or values[name])
          and not (flag == "inplace" and not core.methods[name]) then
          assert.equal("function", type(place[name]), flag .. " " .. name)
          local shown = signatures.shown(form.text)
          assert.truthy(text:find(flag == "inplace" and shown:gsub("^[%w_]+", "%0_") or shown, 1,
            true), shown)
          n = n + 1
        end
      end
    end
    assert.is_true(n > 800)
  end)

  it("have every method, property and function", function()
    local t, methods = run("torch.lua", "torch, Tensor")
    for name, value in pairs(core.methods) do
      if type(value) == "function" then
        assert.equal("function", type(methods[name]), name)
      else
        assert.matches(("\n---@field %s [^\n]"):format(name), files["torch.lua"])
      end
    end
    for name, value in pairs(torch) do
      if type(value) == "function" then
        assert.equal("function", type(t[name]), name)
      end
    end
    for name in pairs(core.dtypes) do
      local text = ("@type torch.dtype\ntorch.%s ="):format(name)
      assert.truthy(files["torch.lua"]:find(text, 1, true), name)
    end
    local functional = run("torch/nn/functional.lua", "functional")
    for name in pairs(torch.nn.functional) do
      assert.equal("function", type(functional[name]), name)
    end
  end)

  it("have the core's own functions", function()
    local own = run("lupine_core.lua", "core")
    for _, form in ipairs(signatures.own) do
      assert.equal("function", type(core[form.name]), form.name)
      assert.equal("function", type(own[form.name]), form.name)
    end
  end)

  it("have the methods of a popart Builder's opsets", function()
    local text = files["popart_builder.lua"]
    assert.truthy(text:find("---@param args any\n---@param reduction? any\n", 1, true))
    assert.truthy(text:find("function AiGraphcore:nllloss(args, reduction, ignoreIndex, "
      .. "inputIsLogProbability, debugContext) end", 1, true))
    assert.truthy(text:find("\nfunction AiOnnx:conv(args, ", 1, true))
  end)

  it("use documented tags, whose brackets close", function()
    local known = { meta = true, class = true, field = true, operator = true, param = true,
      ["return"] = true, overload = true, type = true }
    for _, text in pairs(files) do
      for line in text:gmatch("[^\n]+") do
        local tag, rest = line:match("^%-%-%-@(%a+) (.*)$")
        if tag then
          assert.is_true(known[tag], line)
          for _, pair in ipairs({ "%b()", "%b{}", "%b[]" }) do
            rest = rest:gsub(pair, "")
          end
          assert.is_nil(rest:find("[%(%){}]"), line)
        else
          assert.is_nil(line:find("^%-%-%-@"), line)
        end
      end
    end
  end)

  it("have the keywords that a form does not list where a call takes them", function()
    local function keywords(file, name)
      local at = files[file]:find("\n" .. name .. " = ", 1, true)
      return (files[file]:sub(1, at):match(".*\n\n(.-)$"))
    end
    local nn = "torch/nn/functional.lua"
    assert.matches("inplace%?: boolean", keywords(nn, "functional.relu"))
    assert.matches("inplace%?: boolean", keywords(nn, "functional.dropout"))
    assert.not_matches("inplace%?", keywords(nn, "functional.gelu"))
    assert.not_matches("inplace%?", keywords("torch.lua", "torch.relu"))
    assert.matches("generator%?: torch.Generator", keywords("torch.lua", "torch.rand_like"))
    assert.matches("generator%?: torch.Generator", keywords("torch.lua", "Tensor.uniform_"))
    assert.not_matches("generator%?", keywords("torch.lua", "torch.dropout"))
    for _, name in ipairs({ "torch.zeros", "torch.ones_like", "Tensor.new_full" }) do
      assert.matches("device%?: .*requires_grad%?", keywords("torch.lua", name))
    end
    assert.not_matches("device%?", keywords("torch.lua", "torch.sum"))
  end)

  it("say of each parameter what the form says", function()
    local text = files["torch.lua"]
    local at = text:find("\nTensor.sum = ", 1, true)
    local block = text:sub(at - 700, at):match("\n\n(.-)$")
    for _, line in ipairs({
      "--- `sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
        .. "ScalarType? dtype=None) -> Tensor`",
      "---@param dim? integer[]|torch.Size|integer",
      "---@param keepdim? boolean",
      "---@return torch.Tensor result",
    }) do
      assert.truthy(block:find(line, 1, true), line)
    end
    assert.matches("\n---@return torch.Tensor values\n---@return torch.Tensor indices\n", text)
    assert.truthy(text:find("generator?: torch.Generator", 1, true))
    assert.truthy(text:find("requires_grad?: boolean", 1, true))
  end)

  it("are written as files", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir -p " .. folder .. "/torch/nn")
    annotations.write(folder)
    for name, text in pairs(files) do
      local file = assert(io.open(folder .. "/" .. name))
      assert.equal(text, file:read("a"))
      file:close()
    end
    os.execute("rm -r " .. folder)
  end)
end)

describe("signatures", function()
  it("are read as the core reads its forms", function()
    for _, form in ipairs(core.form_list()) do
      local got = signatures.parse(form.text)
      assert.equal(form.name, got.name)
      assert.equal(#form.arguments, #got.arguments, form.text)
      for i, a in ipairs(form.arguments) do
        local b = got.arguments[i]
        assert.equal(a.name, b.name)
        assert.equal(a.kind, b.kind .. (b.list and "[]" or ""), form.text)
        assert.equal(a.kw_only, b.kw_only, form.text)
      end
      local n = got.results[1].list == "[]" and 0 or #got.results
      assert.equal(form.results, n, form.text)
    end
  end)

  it("stand for every function of the core that scripts see", function()
    local x = torch.zeros(1)
    local function check(label, values)
      for name, f in pairs(values) do
        if type(f) == "function" and debug.getinfo(f, "S").what == "C" then
          assert.truthy(signatures.of(f), label .. name
            .. " needs its line in lua/lupine/base/signatures.lua")
        end
      end
    end
    check("torch.", torch)
    check("x:", core.methods)
    check("torch.nn.functional.", torch.nn.functional)
    check("generator:", { seed = torch.Generator().seed, get_state = torch.Generator().get_state })
    assert.same({ "size(Tensor self, int? dim=None) -> Any" }, { signatures.of(x.size)[1] })
  end)
end)
