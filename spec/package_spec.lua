--- The package of `make deb`: unpacked into a folder it runs, with the manual, and asks
--- for the packages that it needs; the man page is one; the rockspec names what is there.
local files = require("spec.support.files")
local program = require("spec.support.program")

local sanitized = program.build ~= "build"

describe("the package", function()
  if sanitized then
    return it("is made of what is not sanitized", function()
      pending("the other build makes it")
    end)
  end

  local tree, control, package

  setup(function()
    tree = files.folder()
    local out, err, code = program.shell("env -u MAKEFLAGS -u MAKELEVEL make -o all deb")
    assert(code == 0, out .. err)
    package = out:match("deb: (%S+)")
    control = (program.shell("dpkg-deb -f " .. package))
    assert(select(3, program.shell(("dpkg-deb -x %s %s"):format(package, tree))) == 0)
  end)

  teardown(function()
    files.remove(tree)
  end)

  local function run(words)
    return program.shell(("cd / && env -i LUPINE_LOG_LEVEL=warn %s/usr/bin/lupine %s"):format(tree,
      words))
  end

  it("runs from where it is unpacked", function()
    assert.equal("tensor([1., 1.])\n", (run([[-e 'print(require("torch").ones(2))']])))
    local out, err, code = run(tree .. "/usr/share/doc/lupine/examples/linear.lua")
    assert.equal(0, code, err)
    assert.matches("y = 2.99 x %-1.00\n$", out)
  end)

  it("asks for what it is linked to, and for the reader of run files", function()
    for _, name in ipairs({ "libc6 ", "liblua5.4-0", "libdnnl2", "libopenblas", "libjansson4",
      "libedit2", "libpcre2", "lua-yaml" }) do
      assert.matches(name, control:match("Depends: ([^\n]*)"), 1, true)
    end
    assert.matches("Version: " .. require("lupine").version, control, 1, true)
  end)

  it("has the manual, the man page and a copyright, and nothing of the build", function()
    local list = (program.shell(("cd %s && find . -type f"):format(tree)))
    for _, path in ipairs({ "doc/lupine/html/index.html", "doc/lupine/html/torch.nn.html",
      "man/man1/lupine.1.gz", "doc/lupine/copyright", "doc/lupine/changelog.gz" }) do
      assert.matches("./usr/share/" .. path .. "\n", list, 1, true)
    end
    for path in list:gmatch("[^\n]+") do
      assert.matches("^%./usr/", path)
      assert.not_matches("%.[oda]$", path)
    end
    local here = program.shell("pwd -P"):match("[^\n]+")
    assert.equal("", (program.shell(("grep -rlE '%s/(build|spec|src)/' %s/usr/share || true")
      :format(here, tree))))
  end)
end)

describe("the man page", function()
  local path = files.unused()

  setup(function()
    local out, err, code = program.shell(("%s docs/site/man.lua %s >%s"):format(program.host,
      program.host, path))
    assert(code == 0, out .. err)
  end)

  teardown(function()
    os.remove(path)
  end)

  it("is one that mandoc has nothing to say about", function()
    local out, err, code = program.shell("mandoc -Tlint -Wwarning " .. path)
    assert.equal("", out .. err)
    assert.equal(0, code)
  end)

  it("has the options and commands of --help, and the environment", function()
    local text = program.shell("mandoc -Tascii " .. path):gsub(".\b", "") -- struck twice: bold
    for _, part in ipairs({ "-l NAME=MOD", "-v, --version", "ignore LUA_INIT", "profile",
      "info", "LUPINE_CPU", "POPTORCH_LOG_LEVEL", "GOMP_SPINCOUNT" }) do
      assert.matches(part, text, 1, true)
    end
  end)
end)

describe("the rockspec", function()
  it("is data that names a target of the Makefile", function()
    local spec = {}
    assert(loadfile("lupine-scm-1.rockspec", "t", spec))()
    assert.equal("lupine", spec.package)
    assert.equal("make", spec.build.type)
    local makefile = files.read("Makefile")
    assert.matches("\n" .. spec.build.install_target .. ":", makefile, 1, true)
    local folder = files.folder()
    local out, err, code = program.shell(("env -u MAKEFLAGS -u MAKELEVEL make -o all install-rock "
      .. "BUILD=%s LUADIR=%s/lua LIBDIR=%s/lib"):format(program.build, folder, folder))
    assert.equal(0, code, out .. err)
    if not sanitized then
      assert.equal("3\n", (program.shell(("cd / && env -i LUA_PATH_5_4='%s/lua/?.lua;"
        .. "%s/lua/?/init.lua' LUA_CPATH_5_4=%s/lib/?.so lua5.4 -e "
        .. [['print(require("torch").ones(3):numel())']]):format(folder, folder, folder))))
    end
    files.remove(folder)
  end)
end)
