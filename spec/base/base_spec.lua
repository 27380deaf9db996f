local program = require("spec.support.program")

-- spec/tools/check_base.c holds the comparisons; each name is one of them.
describe("src/base", function()
  local function check(name)
    local out, err, code = program.shell(program.build .. "/tools/check_base " .. name)
    assert.equal("", out .. err)
    assert.equal(0, code)
  end

  it("converts half as the compiler's arithmetic does, at every midpoint", function()
    check("half")
  end)

  it("rounds to bfloat16 to the nearer neighbour, ties to even, once", function()
    check("bfloat16")
  end)

  it("draws Philox's known answers", function()
    check("philox")
  end)

  it("draws Philox in vectors as one block at a time", function()
    check("vectors")
  end)

  it("rounds at random by the draw of each element, whatever is rounded with it", function()
    check("rounding")
  end)

  it("draws uniform numbers in [0, 1) with the right moments", function()
    check("uniform")
  end)

  it("draws normal numbers with the right moments, neighbours independent", function()
    check("normal")
  end)

  it("logs what passes the level to the sink", function()
    check("log")
  end)

  it("finds every number that a map has under a key", function()
    check("map")
  end)

  it("lowers the vector unit on request and says so when it cannot", function()
    local ask = " -e 'print(require(\"lupine.core\").host.cpu().simd)'"
    assert.equal("plain\n", (program.shell("LUPINE_CPU=plain " .. program.host .. ask)))
    local out, err = program.shell("LUPINE_CPU=mmx " .. program.host .. ask)
    assert.matches("^%l", out)
    assert.matches("LUPINE_CPU=mmx: known are plain, avx2, avx512, avx512_bf16, amx", err, 1, true)
  end)

  it("says what it does not know in the environment, once", function()
    local script = [[ -e '
      local lupine, torch = require("lupine"), require("torch")
      for i = 1, 2 do
        lupine.compile(function(x) return x + i end, { torch.ones(1) })
        print((xpcall(torch.zeros, debug.traceback, "x")))
      end
      error("end")']]
    for variable, known in pairs({ LUPINE_VERIFY = "0, 1", LUPINE_TRACEBACK = "short, full",
      LUPINE_LOG_LEVEL = "trace, debug, info, warn, err, off" }) do
      local _, err = program.shell(variable .. "=yes " .. program.host .. script)
      local want = ("%s=yes: known are %s\n"):format(variable, known)
      local _, times = err:gsub(want, "")
      assert.equal(1, times, err)
      for _, value in ipairs({ "", known:match("%w+"), known:match("%w+$") }) do
        _, err = program.shell(("%s=%s %s"):format(variable, value, program.host .. script))
        assert.not_matches("known are", err)
      end
    end
  end)

  it("reads the quota of its group, those around it and of both versions", function()
    check("quota")
  end)

  it("runs each part of a section once, however threads wait", function()
    check("team")
    for _, set in ipairs({ "GOMP_SPINCOUNT=0", "GOMP_SPINCOUNT=100000", "OMP_WAIT_POLICY=passive",
      "OMP_PROC_BIND=true", "taskset -c 0" }) do
      local out, err, code = program.shell(("env %s %s/tools/check_base team"):format(set,
        program.build))
      assert.equal("", out .. err, set)
      assert.equal(0, code, set)
    end
  end)

  it("takes the number of threads from the environment, within its limit", function()
    local ask = program.host .. " -e 'print(require(\"lupine.core\").host.cpu().threads)'"
    assert.equal("3\n", (program.shell("OMP_THREAD_LIMIT= OMP_NUM_THREADS=3 " .. ask)))
    assert.equal("2\n", (program.shell("OMP_THREAD_LIMIT=2 OMP_NUM_THREADS=3,2 " .. ask)))
    assert.equal("1\n", (program.shell("env -u OMP_NUM_THREADS taskset -c 0 " .. ask)))
    assert.equal("3\n", (program.shell("OMP_NUM_THREADS=3 taskset -c 0 " .. ask)))
  end)

  it("asks for large pages under large blocks, where the system has them", function()
    if not io.open("/sys/kernel/mm/transparent_hugepage/enabled") then
      return
    end
    local script = [[
      local x = require("torch").zeros(4 * 1024 * 1024)
      local _, n = io.open("/proc/self/smaps"):read("a"):gsub("VmFlags:[^\n]* hg", "")
      print(x:size(0), n > 0)]]
    assert.equal("4194304\ttrue\n", (program.shell(program.host .. " -e '" .. script .. "'")))
  end)
end)
