-- Files as such: what is left when writing or reading fails, permissions, links.
local files = require("spec.support.files")
local core = require("lupine.core")
local csv = require("lupine.csv")
local helper = require("spec.helper")
local images = require("lupine.images")
local numpy = require("lupine.numpy")
local program = require("spec.support.program")
local torch = require("torch")

local folder

setup(function()
  folder = files.folder()
end)
teardown(function()
  files.remove(folder)
end)
before_each(function()
  program.shell(("rm -rf %s/*"):format(folder))
end)

local function at(name)
  return folder .. "/" .. name
end

local function sh(command)
  return (program.shell("cd " .. folder .. " && " .. command))
end

-- Files of the folder that this process has open.
local function open_files()
  local p = io.popen(("ls -l /proc/$PPID/fd | grep -c %s"):format(folder))
  local n = p:read("n")
  p:close()
  return n
end

local FUNCTIONS = { "torch.save", "numpy.save", "numpy.savez", "images.write_png" }
local ENDING = { ["numpy.save"] = ".npy", ["numpy.savez"] = ".npz" }

for _, name in ipairs(FUNCTIONS) do
  local file = "x" .. (ENDING[name] or "")

  local function write(path)
    loadfile("spec/io/file_write.lua")(name, path)
  end

  describe(name, function()
    it("keeps the permissions of the file that it replaces", function()
      for _, mode in ipairs({ "600", "640", "755" }) do
        sh(("umask 0; echo old >%s; chmod %s %s"):format(file, mode, file))
        write(at(file))
        assert.equal(mode .. "\n", sh("stat -c %a " .. file))
      end
      assert.equal(file .. "\n", sh("ls -A"))
    end)

    it("replaces the file that a link leads to, and no link that leads nowhere", function()
      sh(("mkdir d; echo old >d/real; ln -s d/real %s"):format(file))
      write(at(file))
      assert.equal("d/real\n", sh("readlink " .. file))
      assert.is_true(tonumber((sh("stat -c %s d/real"))) > 1000)
      sh(("rm %s; ln -s none %s"):format(file, file))
      helper.raises("OSError", "symbolic link that leads to no file",
        function() write(at(file)) end)
      sh(("rm %s; ln -s %s %s"):format(file, file, file))
      helper.raises("OSError", "symbolic link", function() write(at(file)) end)
    end)

    it("leaves the old file and nothing else where the disk is full", function()
      sh("echo old >" .. file)
      local code = ([[
        local e = require("lupine.base.errors")
        local ok, err = pcall(loadfile("spec/io/file_write.lua"), %q, %q)
        assert(not ok and e.classes.OSError:is(err), tostring(err))
        print(err.message)]]):format(name, at(file))
      for _, blocks in ipairs({ 0, 1, 8 }) do -- of 512 bytes
        local out, err = program.shell(("ulimit -f %d; exec %s -e %s"):format(blocks, program.host,
          program.quote(code)))
        assert.matches("File too large", out .. err)
        assert.equal(file .. "\n", sh("ls -A"))
        assert.equal("old\n", sh("cat " .. file))
      end
    end)
  end)
end

it("a file that was left by a killed process of the same number is no obstacle", function()
  local pid = io.open("/proc/self/stat"):read("n")
  torch.save(1, at("x"))
  for i = 1, 40 do
    sh(("touch x.%d-%d.tmp"):format(pid, i))
  end
  torch.save({ 2 }, at("x"))
  assert.same({ 2 }, torch.load(at("x")))
end)

it("a save removes what killed processes left of saves to the same name", function()
  local gone = program.shell("echo $$"):match("%d+") -- of a shell that has ended
  local pid = io.open("/proc/self/stat"):read("n")
  local others = { ("y.%s-1.tmp"):format(pid), ("y.%s-a.tmp"):format(gone), "y.1x-1.tmp",
    ("y.%s-1.tmp.x"):format(gone), ("yy.%s-1.tmp"):format(gone) }
  sh(("touch y.%s-1.tmp y.%s-27.tmp %s"):format(gone, gone, table.concat(others, " ")))
  torch.save({ 2 }, at("y"))
  others[#others + 1] = "y"
  table.sort(others)
  local left = {}
  for name in sh("ls -A | grep '^y'"):gmatch("[^\n]+") do
    left[#left + 1] = name
  end
  table.sort(left)
  assert.same(others, left)
end)

it("readers leave no file open, whatever they meet", function()
  local function try(read, name, bytes)
    local f = assert(io.open(at(name), "wb"))
    f:write(bytes)
    f:close()
    pcall(read, at(name))
  end
  local readers = { core.read_idx, core.read_npy, core.read_npz, core.read_safetensors,
    images.read, csv.read, torch.load }
  numpy.savez(at("x.npz"), { a = torch.ones(30) })
  local f = io.open(at("x.npz"), "rb")
  local archive = f:read("a")
  assert.equal(1, open_files())
  f:close()
  for _, read in ipairs(readers) do
    for _, bytes in ipairs({ "", "x", archive, archive:sub(1, 200), archive:sub(1, -2),
      "\x93NUMPY", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "\x1f\x8b" .. ("x"):rep(30) }) do
      try(read, "y", bytes)
    end
    pcall(read, at("none"))
    pcall(read, folder)
    pcall(read, "/dev/null")
  end
  assert.equal(0, open_files())
end)
