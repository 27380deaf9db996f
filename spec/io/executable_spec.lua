-- Executable files, their hash and the lock of their cache.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local models = require("spec.support.models")
local poptorch = require("poptorch")
local processes = require("spec.support.processes")
local program = require("spec.support.program")
local torch = require("torch")

local folder

setup(function()
  folder = files.unused()
  core.make_folder(folder)
end)
teardown(function()
  files.remove(folder)
end)

describe("XXH3", function()
  it("has the values of the reference implementation (xxHash 0.8.1)", function()
    local bytes = {}
    for i = 0, 1024 do
      bytes[i + 1] = string.char((i * 7 + 1) % 256)
    end
    local all = table.concat(bytes)
    for n, hash in pairs({ [0] = "2d06800538d394c2", "e12ef9d2eb86ceeb", [4] = "244f36de481e7522",
      [9] = "4781d83b8e99d495", [17] = "2bf6f66973a6179d", [129] = "8433489056750b32",
      [241] = "bff7215089202d8f", [1024] = "ac8e32e4ea3ba062", [1025] = "c856c953bbdbc807" }) do
      assert.equal(hash, core.xxh3(all:sub(1, n)))
    end
  end)
end)

describe("an executable file", function()
  local path

  before_each(function()
    path = folder .. "/a.lupine"
    core.write_executable(path, { "w", "n" }, { torch.tensor({ 1.5, -2 }), torch.tensor(7) },
      { step = "a \"text\"\n", empty = "" })
  end)

  it("gives back texts and tensors, its format and version", function()
    local names, tensors, texts = core.read_executable(path)
    assert.same({ "w", "n" }, names)
    assert.same({ 1.5, -2 }, tensors[1]:tolist())
    assert.equal(7, tensors[2]:item())
    assert.same({ step = "a \"text\"\n", empty = "", format = core.executable_format,
      version = core.version }, texts)
  end)

  it("of another version or format tells only that", function()
    local bytes = files.read(path)
    for _, change in ipairs({ { '"version":"' .. core.version, '"version":"0.0.9' },
      { '"lupine.executable":"' .. core.executable_format, '"lupine.executable":"9' } }) do
      local at, last = bytes:find(change[1], 1, true)
      files.write(path, bytes:sub(1, at - 1) .. change[2] .. bytes:sub(last + 1))
      local names, _, texts = core.read_executable(path)
      assert.same({}, names)
      assert.is_nil(texts.step)
      assert.truthy(texts.version ~= core.version or texts.format ~= core.executable_format)
    end
  end)

  it("with any byte changed is refused, by name", function()
    local bytes = files.read(path)
    local first = 9 + string.unpack("<I8", bytes)
    for at = first, #bytes do
      local changed = string.char(bytes:byte(at) ~ 1)
      files.write(path, bytes:sub(1, at - 1) .. changed .. bytes:sub(at + 1))
      local e = helper.raises("ValueError", "damaged", function()
        core.read_executable(path)
      end)
      assert.truthy(e.message:find(path, 1, true))
    end
  end)

  it("with another type or shape of a tensor is refused, by name", function()
    local bytes = files.read(path)
    for _, change in ipairs({ { '"F32","shape":[2]', '"I32","shape":[2]' },
      { '"F32","shape":[2]', '"F16","shape":[4]' }, { '"F32","shape":[2]', '"I64","shape":[1]' },
      { '"F32","shape":[2]', '"F32","shape":[1,2]' } })
    do
      local at, last = bytes:find(change[1], 1, true)
      local header = string.unpack("<I8", bytes) + #change[2] - #change[1]
      files.write(path, string.pack("<I8", header) .. bytes:sub(9, at - 1) .. change[2]
        .. bytes:sub(last + 1))
      helper.refuses("ValueError", "a.lupine: damaged: its contents have the hash",
        core.read_executable, path)
    end
  end)

  it("has no text with a zero byte, and none that is no vector of bytes", function()
    for _, odd in ipairs({ torch.tensor({ 65, 0, 66 }, { dtype = torch.uint8 }),
      torch.tensor({ { 65 } }, { dtype = torch.uint8 }), torch.tensor({ 65.0 }) }) do
      core.write_executable(path, { "text/odd" }, { odd }, {})
      helper.refuses("ValueError", "a.lupine: damaged: 'text/odd' is no text",
        core.read_executable, path)
    end
  end)

  it("has what a device trained that nobody has read yet", function()
    local sum = models.Sum(1, 2)
    local training = poptorch.trainingModel(sum, nil, torch.optim.SGD(sum:parameters(),
      { lr = 1.0 }))
    training(torch.ones(2))
    core.write_executable(path, { "w" }, { sum.w }, {})
    helper.near(select(2, core.read_executable(path))[1], { 0, 1 })
  end)

  it("is told from other files of tensors", function()
    core.write_safetensors(path, { "w" }, { torch.ones(2) }, {})
    helper.raises("ValueError", "no executable", function()
      core.read_executable(path)
    end)
    helper.raises("FileNotFoundError", "nothing%-here", function()
      core.read_executable(folder .. "/nothing-here")
    end)
  end)
end)

describe("a path with a zero byte", function()
  it("is refused, and not cut there", function()
    local cut = folder .. "/cut\0and more"
    for name, f in pairs({ read = core.read_executable, list = core.list_folder,
      is_folder = core.is_folder, make = core.make_folder, lock = core.lock_file,
      load_library = core.load_library, open = core.devices.open, log_to = core.host.log_to,
      log_copy = core.host.log_copy }) do
      local e = helper.refuses("ValueError", "path: has a zero byte", f, cut)
      assert.truthy(e, name)
    end
    assert.is_nil(io.open(folder .. "/cut"))
  end)
end)

describe("make_folder", function()
  it("makes what is missing, and says what is in the way", function()
    core.make_folder(folder .. "/x/y//z/")
    core.make_folder(folder .. "/x")
    assert.is_true(core.is_folder(folder .. "/x/y/z"))
    files.write(folder .. "/file", "")
    assert.is_false(core.is_folder(folder .. "/file"))
    helper.refuses("OSError", "/file", core.make_folder, folder .. "/file")
    helper.refuses("OSError", "/file", core.make_folder, folder .. "/file/below")
  end)
end)

describe("lock_file", function()
  it("is held by one process at a time, and leaves no file", function()
    local script = program.temporary(([[
      local core = require("lupine.core")
      for _ = 1, 40 do
        local held <close> = core.lock_file(%q)
        local f = io.open(%q)
        local n = f and f:read("n") or 0
        if f then f:close() end
        f = io.open(%q, "w")
        f:write(n + 1)
        f:close()
      end]]):format(folder .. "/lock", folder .. "/count", folder .. "/count"))
    local line = ("%s %s & "):format(program.host, script)
    local _, err, code = program.shell(line:rep(4) .. "wait")
    os.remove(script)
    assert.equal("", err)
    assert.equal(0, code)
    assert.equal("160", files.read(folder .. "/count"))
    assert.is_nil(io.open(folder .. "/lock"))
  end)

  it("leaves no file open", function()
    local function held()
      core.lock_file(folder .. "/open"):close()
      return processes.count_files()
    end
    assert.equal(held(), held())
  end)

  it("is not a forked process's, which neither keeps nor ends it", function()
    local path_of_lock = folder .. "/forked"
    local held = core.lock_file(path_of_lock)
    local worker = core.start_worker(function(channel)
      held:close()
      local links = io.popen("ls -l /proc/" .. core.devices.process() .. "/fd")
      channel:send(links:read("a"), {})
      channel:receive()
    end)
    local text = worker:receive()
    assert.truthy(text:find("socket:", 1, true), text)
    assert.is_nil(text:find("/forked", 1, true))
    assert.truthy(io.open(path_of_lock))
    held:close()
    worker:close(0)
    assert.is_nil(io.open(path_of_lock))
  end)

  it("is waited for on the file that is there now", function()
    local path_of_lock, done = folder .. "/gone", folder .. "/done"
    local script = program.temporary(([[
      local core = require("lupine.core")
      io.open(%q, "w"):close()
      core.lock_file(%q)
      io.open(%q, "w"):close()]]):format(folder .. "/begun", path_of_lock, done))
    local held = core.lock_file(path_of_lock)
    program.shell(("%s %s > %s/out 2>&1 &"):format(program.host, script, folder))
    repeat
      core.devices.sleep(0.01)
    until io.open(folder .. "/begun")
    core.devices.sleep(0.1)
    assert.is_nil(io.open(done))
    os.remove(path_of_lock) -- who had it last may live on, but its file does not
    local stop = core.host.clock() + 10
    repeat
      core.devices.sleep(0.01)
    until io.open(done) or core.host.clock() > stop
    assert.truthy(io.open(done))
    held:close()
    os.remove(script)
  end)

  it("ends with its process", function()
    local script = program.temporary(([[
      require("lupine.core").lock_file(%q)
      os.exit(0, false)]]):format(folder .. "/left"))
    program.run({ script })
    os.remove(script)
    core.lock_file(folder .. "/left"):close()
    assert.is_nil(io.open(folder .. "/left"))
  end)
end)
