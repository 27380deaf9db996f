local complete = require("lupine.complete").complete

describe("lupine.complete", function()
  local function no_files()
    return {}
  end

  local function run(text, globals)
    return complete(text, globals, no_files)
  end

  local function fail()
    error("user code ran")
  end

  it("completes globals, keywords and fields", function()
    assert.equal("ue", (run("x = val", { value = 1 })))
    assert.equal("ction", (run("fun", {})))
    assert.equal("cond", (run("a.b.se", { a = { b = { second = 1 } } })))
  end)

  it("adds what all choices share, then lists them", function()
    local globals = { alpha_one = 1, alpha_two = 2 }
    assert.equal("pha_", (run("al", globals)))
    local insert, list = run("alpha_", globals)
    assert.equal("", insert)
    assert.equal("alpha_one  alpha_two", list)
  end)

  it("offers methods through metatables without running code", function()
    local base = setmetatable({ matmul = fail, maximum = fail, data = 1 }, {
      __index = setmetatable({ masked = fail }, { __index = fail }),
    })
    local x = setmetatable({}, { __index = base, __pairs = fail, __len = fail })
    local insert, list = run("x:ma", { x = x })
    assert.equal("", insert)
    assert.equal("masked   matmul   maximum", list)
    assert.equal("", (run("x:dat", { x = x })))
    assert.equal("a", (run("x.dat", { x = x })))
  end)

  it("reads __methods where __index is a function", function()
    local x = setmetatable({}, { __index = fail, __methods = { backward = fail } })
    assert.equal("ward", (run("x:back", { x = x })))
  end)

  it("never calls a function __index of globals", function()
    assert.equal("", (run("lazy.fie", { lazy = setmetatable({}, { __index = fail }) })))
    assert.equal("", (run("call().fie", { fie = 1 })))
  end)

  it("hides private names until asked", function()
    local globals = { m = { _hidden = 1, open = 2 } }
    assert.equal("open", (run("m.", globals)))
    assert.equal("idden", (run("m._h", globals)))
  end)

  it("completes methods of string literals", function()
    assert.equal("er", (run("('abc'):upp", {})))
  end)

  it("completes module names and files inside strings", function()
    local function files(pattern)
      return pattern == "da*" and { "data.npz" } or {}
    end
    assert.equal("ta.npz", (complete("torch.load('da", {}, files)))
    package.preload["zebra.stripe"] = fail
    finally(function()
      package.preload["zebra.stripe"] = nil
    end)
    assert.equal("ra.stripe", (complete("local z = require 'zeb", {}, files)))
  end)

  it("indents at the start of a line", function()
    assert.equal("  ", (run("", {})))
  end)

  it("completes keywords of functions and classes", function()
    local nn = require("torch").nn
    local function mine(alpha)
      error(alpha)
    end
    local globals = { nn = nn, x = require("torch").ones(1), mine = mine }
    assert.equal("as", (run("nn.Linear(1, 2, { bi", globals)))
    assert.equal("ing", (run("y = nn.Conv2d(1, 2, 3, { stride = f({1}), padd", globals)))
    assert.equal("epdim", (run("x:sum(0, {ke", globals)))
    assert.equal("pha", (run("mine{ al", globals)))
    assert.equal("", (run("t = { al", globals)))
    assert.matches("bias .* in_features", select(2, run("nn.Linear(1, 2, {", globals)))
  end)

  it("completes chains of options and methods of what a class makes", function()
    local globals = { poptorch = require("poptorch"), nn = require("torch").nn }
    assert.equal("erations", (run("poptorch.Options():deviceIt", globals)))
    assert.equal("Factor", (run("o = poptorch.Options():deviceIterations(8):replication", globals)))
    assert.equal("grad_", (run("nn.Linear(1, 2):requires_", globals)))
    assert.equal("", (run("nn.Linear(1, 2):to(x):requires_", globals)))
  end)

  it("calls no function of a metatable of the user", function()
    local trap = setmetatable({}, { __members = fail, __index = fail, __pairs = fail,
      __call = fail, __len = fail })
    for _, text in ipairs({ "trap.x", "trap:x", "trap().x", "trap({ x", "trap{x" }) do
      assert.equal("", (run(text, { trap = trap })))
    end
  end)
end)
