-- Folders that appear as a whole, and checksums of files in pieces.
local core = require("lupine.core")
local files = require("spec.support.files")
local processes = require("spec.support.processes")
local program = require("spec.support.program")

local folder

setup(function()
  folder = program.shell("mktemp -d"):gsub("\n", "")
end)
teardown(function()
  program.shell("rm -rf " .. folder)
end)
before_each(function()
  program.shell(("rm -rf %s/* %s/.tmp-*"):format(folder, folder))
end)

local function listed(path)
  return (program.shell("cd " .. (path or folder) .. " && find . -mindepth 1 | sort"))
end

-- A folder with a file of that text, filled and renamed.
local function put(name, text, replace)
  local new <close> = core.new_folder(folder)
  core.write_text(new:path() .. "/file", text)
  return new:rename(folder .. "/" .. name, replace)
end

describe("new_folder", function()
  it("is not there under its name before it is renamed", function()
    local new <close> = core.new_folder(folder)
    core.write_text(new:path() .. "/file", "x")
    assert.matches("^%./%.tmp%-%d+%-%d+\n%./%.tmp%-%d+%-%d+/file\n$", listed())
    assert.is_true(new:rename(folder .. "/a"))
    assert.equal("./a\n./a/file\n", listed())
  end)

  it("goes when it is closed before that", function()
    local new = core.new_folder(folder)
    core.write_text(new:path() .. "/file", "x")
    new:close()
    assert.equal("", listed())
    assert.has_error(function()
      new:rename(folder .. "/a")
    end)
  end)

  it("replaces nothing but an empty folder, unless it is told to", function()
    program.shell(("mkdir %s/a"):format(folder))
    assert.is_true(put("a", "one"))
    assert.is_false(put("a", "two"))
    assert.equal("one", files.read(folder .. "/a/file"))
    assert.is_true(put("a", "two", true))
    assert.equal("two", files.read(folder .. "/a/file"))
    assert.equal("./a\n./a/file\n", listed())
  end)

  it("does not take the place of a file", function()
    files.write(folder .. "/a", "mine")
    for _, replace in ipairs({ false, true }) do
      assert.has_error(function()
        put("a", "x", replace)
      end)
    end
    assert.equal("mine", files.read(folder .. "/a"))
    assert.equal("./a\n", listed())
  end)

  -- The number of a process that has ended.
  local function gone()
    return math.tointeger((program.shell("echo $$")))
  end

  it("removes what killed processes have left, and nothing else", function()
    local pid = gone()
    program.shell(("cd %s && mkdir .tmp-%d-1 .tmp-%d-2 .tmp-x .tmp-%d-1x && touch .tmp-%d-1/file")
      :format(folder, pid, processes.pid, pid, pid))
    put("a", "x")
    for name, there in pairs({ [".tmp-" .. pid .. "-1"] = false, [".tmp-x"] = true,
      [".tmp-" .. processes.pid .. "-2"] = true, [".tmp-" .. pid .. "-1x"] = true }) do
      assert.equal(there, core.is_folder(folder .. "/" .. name), name)
    end
  end)

  it("leaves what somebody has locked, whoever that is", function()
    local path = ("%s/.tmp-%d-1"):format(folder, gone())
    program.shell("mkdir " .. path)
    local holder = io.popen(("flock %s -c 'read x'"):format(path), "w")
    local code
    repeat
      code = select(3, program.shell(("flock -n %s true"):format(path)))
    until code ~= 0
    put("a", "x")
    assert.is_true(core.is_folder(path))
    holder:write("\n")
    holder:close()
    put("b", "x")
    assert.is_false(core.is_folder(path))
  end)

  it("raises what the system says", function()
    for _, parent in ipairs({ "/proc/none", folder .. "/none" }) do
      assert.has_error(function()
        core.new_folder(parent)
      end)
    end
  end)
end)

describe("remove_folder", function()
  it("takes the folder away with its files", function()
    put("a", "x")
    core.remove_folder(folder .. "/a")
    assert.equal("", listed())
    assert.has_error(function()
      core.remove_folder(folder .. "/a")
    end)
  end)

  it("takes folders within it, and links, but not what they lead to", function()
    put("a", "x")
    put("kept", "y")
    core.make_folder(folder .. "/a/b/c")
    files.write(folder .. "/a/b/c/file", "z")
    for _, link in ipairs({ "a/link", "a/b/link" }) do
      os.execute(("ln -s '%s/kept' '%s/%s'"):format(folder, folder, link))
    end
    core.remove_folder(folder .. "/a")
    assert.equal("./kept\n./kept/file\n", listed())
  end)
end)

describe("remove_folder, where not all can go,", function()
  it("says so, and takes nothing that a link leads to", function()
    put("kept", "y")
    os.execute(("ln -s '%s/kept' '%s/link'"):format(folder, folder))
    assert.has_error(function()
      core.remove_folder(folder .. "/link")
    end)
    assert.equal("y", files.read(folder .. "/kept/file"))
    core.make_folder(folder .. "/deep" .. ("/d"):rep(40))
    assert.has_error(function()
      core.remove_folder(folder .. "/deep")
    end)
    assert.is_false(core.is_folder(folder .. "/deep"))
    os.execute(("rm -rf '%s'/.tmp-* '%s/kept'"):format(folder, folder))
  end)
end)

describe("new_folder", function()
  it("is locked while somebody fills it", function()
    local new <close> = core.new_folder(folder)
    local try = ("flock -n '%s' true"):format(new:path())
    assert.is_falsy((os.execute(try)))
    new:rename(folder .. "/filled")
    assert.is_true((os.execute(("flock -n '%s/filled' true"):format(folder))))
    core.remove_folder(folder .. "/filled")
  end)
end)

describe("hash_file", function()
  it("is the XXH3 of the bytes, whatever their number", function()
    local path = folder .. "/bytes"
    for _, n in ipairs({ 0, 1, 3, 8, 16, 17, 128, 240, 241, 1023, 1024, 1025, 1087, 1088, 2048,
      2049, 262143, 262144, 262145, 600001 }) do
      local bytes = ("\1\7\250lupine\0?"):rep(n // 11 + 1):sub(1, n)
      files.write(path, bytes)
      local hash, size = core.hash_file(path)
      assert.equal(core.xxh3(bytes), hash)
      assert.equal(n, size)
    end
  end)

  it("of a file that is not there is an error", function()
    assert.has_error(function()
      core.hash_file(folder .. "/none")
    end)
  end)
end)

describe("lua_random", function()
  it("is where math.random goes on", function()
    local state = core.lua_random()
    local drawn = { math.random(), math.random(100), math.random(0) }
    core.lua_random(state)
    assert.same(drawn, { math.random(), math.random(100), math.random(0) })
  end)

  it("refuses what is no state", function()
    for _, bad in ipairs({ 1, core.tensor({ 1 }), core.tensor({ 1, 2, 3, 4 }) }) do
      assert.has_error(function()
        core.lua_random(bad)
      end)
    end
  end)
end)
