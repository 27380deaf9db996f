-- Folders of runs: what is in them, that none is ever written over, and what they know of
-- git. (Expectation 23.)
local config = require("lupine.run.config")
local core = require("lupine.core")
local files = require("spec.support.files")
local folder = require("lupine.run.folder")
local helper = require("spec.helper")
local program = require("spec.support.program")
local provenance = require("lupine.run.provenance")

describe("a folder of a run", function()
  local parent

  before_each(function()
    parent = files.folder()
  end)
  after_each(function()
    files.remove(parent)
  end)

  local function create(name)
    return folder.create(config.of_table({ model = "a.b", data = { train = "c" }, name = name,
      folder = parent }), { seed = 3 })
  end

  it("has the configuration and where the run comes from", function()
    local run = create("x")
    assert.equal(parent .. "/x-001", run.path)
    assert.matches("\nfolder: .*# table\nseed: null +# not set\n",
      files.read(run:file("config.yaml")))
    local facts = core.json_decode(files.read(run:file("run.json")))
    local process = core.host.process()
    assert.same({ "running", 3, process.pid, process.host, process.folder },
      { facts.status, facts.seed, facts.pid, facts.host, facts.folder })
    assert.equal(core.version, facts.versions.lupine)
    assert.matches("^%d+%.%d+%.%d+$", facts.versions.libraries.oneDNN)
    assert.matches("OpenBLAS 0%.3", facts.versions.libraries.OpenBLAS)
    assert.equal(core.host.cpu().name, facts.cpu.name)
    assert.is_true(facts.command.n > 0)
    assert.is_true(math.abs(facts.started - os.time()) < 60)
  end)

  it("is one whatever became of run.json, and none without config.yaml", function()
    local run = create("x")
    for _, text in ipairs({ "", "{\"status\": ", "[]", "{\"status\": 3}" }) do
      files.write(run:file("run.json"), text)
      assert.equal("damaged", folder.open(run.path).facts.status)
      local again = folder.list(parent)[1]
      again:claim({})
      assert.equal("running", folder.open(run.path).facts.status)
    end
    files.write(run:file("run.json"), "")
    os.remove(run:file("config.yaml"))
    helper.refuses("ValueError", "x%-001/run.json' tells of no run", folder.open, run.path)
  end)

  it("is a new one each time, whatever is there", function()
    assert.equal(parent .. "/x-001", create("x").path)
    assert.equal(parent .. "/x-002", create("x").path)
    files.write(parent .. "/x-007", "a file")
    core.make_folder(parent .. "/x-009")
    core.make_folder(parent .. "/x-y-099")
    assert.equal(parent .. "/x-010", create("x").path)
    core.make_folder(parent .. "/x-999")
    assert.equal(parent .. "/x-1000", create("x").path)
    assert.equal(parent .. "/a.b%-001", create("a.b%").path)
    local names = {}
    for i, run in ipairs(folder.list(parent, "x")) do
      names[i] = run.path:match("[^/]+$")
    end
    assert.same({ "x-1000", "x-010", "x-002", "x-001" }, names)
  end)

  it("is one of its own for each of eight that begin at once", function()
    local script = program.temporary(([[
      local config = require("lupine.run.config")
      local c = config.of_table({ model = "a.b", data = { train = "c" }, name = "x",
        folder = %q })
      print(require("lupine.run.folder").create(c).path)
    ]]):format(parent))
    local out, err = program.shell(("for i in 1 2 3 4 5 6 7 8; do %s %s & done; wait"):format(
      program.host, script))
    os.remove(script)
    local seen, count = {}, 0
    for line in out:gmatch("[^\n]+") do
      assert.is_nil(seen[line])
      seen[line], count = true, count + 1
      assert.is_true(core.is_folder(line))
      assert.matches("model: a.b", files.read(line .. "/config.yaml"))
    end
    assert.equal(8, count, err)
    assert.equal(8, #core.list_folder(parent))
  end)

  it("tells whether its process lives", function()
    local run = create("x")
    local function said(facts)
      run:note(facts)
      return folder.open(run.path):is_running()
    end
    assert.is_false(said({ pid = math.maxinteger >> 33 }))
    local parent_process = tonumber(files.read("/proc/self/stat"):match("^%d+ %(.-%) %S (%d+)"))
    assert.is_true(said({ pid = parent_process, began = provenance.began(parent_process) }))
    assert.is_false(said({ began = 1 })) -- another process has the number now
    assert.is_nil(said({ host = "elsewhere" }))
    assert.is_false(said({ status = "finished" }))
    helper.refuses("FileNotFoundError", "there is no run", folder.open, parent .. "/y")
    helper.refuses("ValueError", "no folder of a run", folder.open, parent)
  end)

  it("knows git's commit and what the tree has beside it", function()
    local code = program.temporary(([[
      local config = require("lupine.run.config")
      local c = config.of_table({ model = "a.b", data = { train = "c" }, folder = %q })
      print(require("lupine.run.folder").create(c).path)
    ]]):format(parent))
    local host = io.popen("realpath " .. program.host):read("l")
    local tree = files.folder()
    local out, err = program.shell(([[cd %s && export HOME=$PWD && git init -q . &&
      git config user.email a@b && git config user.name a && echo one > file && git add file &&
      git commit -qm one && %s %s && echo two > file && echo new > other && %s %s]]):format(tree,
      host, code, host, code))
    os.remove(code)
    local commit = io.popen(("git -C %s rev-parse HEAD"):format(tree)):read("l")
    files.remove(tree)
    local first, second = out:match("^([^\n]+)\n([^\n]+)\n")
    assert(first, err)
    local clean, dirty = folder.open(first).facts.git, folder.open(second).facts.git
    assert.same({ commit, false, 0 }, { clean.commit, clean.dirty, clean.untracked.n })
    assert.same({ commit, true, "other" }, { dirty.commit, dirty.dirty, dirty.untracked[1] })
    assert.is_nil(io.open(first .. "/git.diff"))
    assert.matches("\n%-one\n%+two\n", files.read(second .. "/git.diff"))
  end)

  it("tells nothing of a tree that has the same changes still", function()
    local script = program.temporary(([[
      local folder = require("lupine.run.folder")
      local config = require("lupine.run.config")
      local c = config.of_table({ model = "a.b", data = { train = "c" }, folder = %q })
      folder.create(c)
      local began = folder.open(%q)
      began:note({ pid = 1 << 30 })
      began:claim({})
    ]]):format(parent, parent .. "/run-001"))
    local host = io.popen("realpath " .. program.host):read("l")
    local tree = files.folder()
    local out, err, code = program.shell(([[cd %s && export HOME=$PWD && git init -q . &&
      git config user.email a@b && git config user.name a && echo one > file && git add file &&
      git commit -qm one && echo two > file && %s %s]]):format(tree, host, script))
    os.remove(script)
    files.remove(tree)
    assert.same({ "", "", 0 }, { out, err, code })
    assert.is_nil(io.open(parent .. "/run-001/git-2.diff"))
  end)

  it("tells when a run goes on with other code", function()
    local create_one = program.temporary(([[
      local config = require("lupine.run.config")
      local c = config.of_table({ model = "a.b", data = { train = "c" }, folder = %q })
      require("lupine.run.folder").create(c)
    ]]):format(parent))
    local claim = program.temporary(([[
      require("lupine.run.folder").open(%q):claim({})
    ]]):format(parent .. "/run-001"))
    local host = io.popen("realpath " .. program.host):read("l")
    local tree = files.folder()
    local _, err, code = program.shell(([[cd %s && export HOME=$PWD && git init -q . &&
      git config user.email a@b && git config user.name a && echo one > file && git add file &&
      git commit -qm one && H=%s && $H %s && C=%s && echo first >&2 && $H $C && echo two > file &&
      echo second >&2 && $H $C && echo third >&2 && $H $C]]):format(tree, host, create_one, claim))
    os.remove(create_one)
    os.remove(claim)
    files.remove(tree)
    assert.equal(0, code, err)
    assert.matches("^first\nsecond\n[^\n]*was made with other code[^\n]*git%-3.diff[^\n]*\n"
      .. "third\n$", err)
    local facts = folder.open(parent .. "/run-001").facts
    assert.equal(3, facts.sessions.n)
    assert.same({ false, true }, { facts.sessions[1].git.dirty, facts.git.dirty })
    assert.matches("%-one\n%+two", files.read(parent .. "/run-001/git-3.diff"))
  end)
end)
