-- A save that is killed or fails leaves the old checkpoint or the new one: a part of what
-- spec/stress/checkpoint.lua does in full. Values: the training that nobody disturbed.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local crashes = require("spec.support.crashes")
local helper = require("spec.helper")
local program = require("spec.support.program")
local torch = require("torch")

local raises = helper.raises
local has_strace = select(3, program.shell("strace -o /dev/null true")) == 0
local folder

setup(function()
  folder = program.shell("mktemp -d"):gsub("\n", "")
end)
teardown(function()
  program.shell(("umount %s/full; rm -rf %s"):format(folder, folder))
end)

describe("a save", function()
  math.randomseed(os.time())
  local first = math.random(59)

  local function strike(stride, failure, only)
    if not has_strace then
      pending("strace cannot be run here")
    end
    local wrong, noticed, struck = crashes.strike_all(stride, (first - 1) % stride + 1, failure,
      only)
    assert.same({}, wrong)
    assert.is_true(struck > 0)
    return noticed, struck
  end

  it("that is killed at a system call leaves a whole checkpoint", function()
    local noticed, struck = strike(41)
    assert.equal(struck, noticed)
  end)

  it("one of whose system calls fails leaves a whole checkpoint", function()
    strike(59, "EIO")
    strike(59, "ENOSPC")
  end)

  it("that cannot write or rename says so", function()
    local noticed, struck = strike(5, "ENOSPC", { write = true, rename = true })
    assert.equal(struck, noticed)
  end)

  it("has all on the disk before a name tells of it, and the name before it returns", function()
    if not has_strace then
      pending("strace cannot be run here")
    end
    local list = crashes.renames(folder .. "/synced")
    assert.is_true(#list >= 4) -- tensors, state.json, manifest.json, and the folder itself
    for _, r in ipairs(list) do
      assert.same({ r[1], true, true }, { r[1], r.before, r.after })
    end
    assert.matches("/step%-00000001$", list[#list][2])
    assert.matches("/manifest.json$", list[#list - 1][2])
  end)

  it("that is killed at a random time leaves a whole checkpoint", function()
    assert.same({}, (crashes.kill_at_random(5, math.random)))
  end)

  it("of several processes in one folder clashes with none", function()
    assert.same({}, crashes.together(4, 4))
  end)
end)

describe("a folder that cannot be written", function()
  local function manager(path)
    return checkpoint.Manager(path, { keep = 1 })
  end

  it("is an error that names it; what was there stays", function()
    local root = folder .. "/read-only"
    manager(root):save(1, { x = torch.ones(3) })
    local _, _, code = program.shell(("chattr +i %s"):format(root))
    if code ~= 0 then -- no such attribute on this file system; not root
      program.shell("chmod a-w " .. root)
    end
    local e = raises("OSError", nil, function()
      manager(root):save(2, { x = torch.ones(3) })
    end)
    assert.matches(root, e.message, 1, true)
    program.shell(("chattr -i %s; chmod u+w %s"):format(root, root))
    assert.equal(1, manager(root):list()[1].step)
  end)

  it("is a file, or lies in one", function()
    local path = folder .. "/file"
    program.shell("echo mine > " .. path)
    for _, root in ipairs({ path, path .. "/below" }) do
      local e = raises("OSError", nil, function()
        manager(root):save(1, { x = 1 })
      end)
      assert.matches(path, e.message, 1, true)
    end
    assert.equal("mine\n", program.shell("cat " .. path))
  end)

  it("is full", function()
    local root = folder .. "/full"
    program.shell("mkdir " .. root)
    local _, _, code = program.shell("mount -t tmpfs -o size=256k tmpfs " .. root)
    if code ~= 0 then
      return pending("no file system can be mounted here")
    end
    manager(root):save(1, { x = torch.ones(1000) })
    local e = raises("OSError", "No space left", function()
      manager(root):save(2, { x = torch.ones(1000000) })
    end)
    assert.matches(root, e.message, 1, true)
    assert.equal("step-00000001\n", program.shell("ls -A " .. root))
    assert.equal(1000, manager(root):restore_latest({}).x:numel())
    program.shell("umount " .. root)
  end)

  it("is not the home folder, which nothing asks for", function()
    local _, err, code = program.shell(("env -u HOME -u XDG_RUNTIME_DIR %s -e %s"):format(
      program.host, program.quote(("require('lupine.checkpoint').save('%s/h', {x = 1})"):format(
        folder))))
    assert.equal("", err)
    assert.equal(0, code)
    assert.is_true(core.is_folder(folder .. "/h"))
  end)
end)
