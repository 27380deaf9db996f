-- What the environment says is refused by name where it cannot be meant.
describe("a variable of the environment", function()
  local files = require("spec.support.files")
  local machine = require("spec.support.machine")
  local program = require("spec.support.program")
  local folder

  setup(function()
    folder = machine.begin()
  end)

  teardown(machine.finish)

  local TRAINS = [[
    local poptorch, popdist = require("poptorch"), require("popdist")
    local torch = require("torch")
    popdist.init()
    local model = poptorch.inferenceModel(torch.nn.Linear(1, 1))
    print(model(torch.ones(1, 1)).shape)
    local popart = require("popart")
    local builder = popart.Builder()
    local y = builder.aiOnnx:relu({ builder:addInputTensor("FLOAT", { 1 }) })
    popart.InferenceSession(builder:getModelProto(), popart.DataFlow(1, { y }),
      popart.DeviceManager():createCpuDevice()):prepareDevice()
    pcall(torch.zeros, "x")
    error("end")
  ]]

  -- What a script that uses all of them says where one has a value.
  local function says(name, value)
    local out, err = program.shell(("LUPINE_DEVICES=%s %s=%s %s -e %s"):format(folder, name,
      program.quote(value), program.host, program.quote(TRAINS)))
    return err, out
  end

  -- Variable -> what is refused; README's names.
  local REFUSED = {
    LUPINE_CPU = { "abc" }, LUPINE_LOG_LEVEL = { "abc" }, LUPINE_DUMP = { "abc" },
    LUPINE_VERIFY = { "abc" }, LUPINE_TRACEBACK = { "abc" },
    LUPINE_IPUS = { "abc", "3", "0" }, LUPINE_DEVICES = { "/proc/none/x" },
    LUPINE_FAULTS = { "abc", 'popart message="open', "popart call=x" },
    POPTORCH_LOG_LEVEL = { "abc", "5" }, POPTORCH_LOG_DEST = { "/proc/none/x" },
    POPLAR_ENGINE_OPTIONS = { "abc", "[]" }, PVTI_OPTIONS = { "abc", "[]" },
    POPTORCH_IPU_MODEL = { "abc", "1.5" }, POPTORCH_SMALL_IPU_MODEL = { "abc" },
    POPTORCH_IPU_MODEL_VERSION = { "abc", "ipu3" }, POPTORCH_WAIT_FOR_IPU = { "yes" },
    POPTORCH_MAX_GRAPH_LEN = { "abc" }, POPTORCH_EXPORT_PROTO_FILE = { "model.onnx" },
    POPTORCH_CACHE_DIR = { "/proc/none/x" }, POPTORCH_DEFAULT_OPTIONS = { "abc", "[]" },
    OMPI_COMM_WORLD_SIZE = { "abc", "0", "-1" }, OMPI_COMM_WORLD_RANK = { "abc", "1", "-1" },
    OMP_NUM_THREADS = { "abc" }, OMP_THREAD_LIMIT = { "abc" }, GOMP_SPINCOUNT = { "abc" },
    OMP_WAIT_POLICY = { "abc" }, LUA_INIT = { "abc" },
    POPART_LOG_LEVEL = { "abc" }, POPART_LOG_DEST = { "/proc/none/x" },
    POPART_LOG_CONFIG = { "abc", "{" }, POPART_LOG_FORMAT = { "%q" },
    POPART_CACHE_DIR = { "/proc/none/x" },
    POPDIST_NUM_TOTAL_REPLICAS = { "abc", "0" }, POPDIST_NUM_LOCAL_REPLICAS = { "abc", "0" },
    POPDIST_REPLICA_INDEX_OFFSET = { "abc", "-1" }, POPDIST_NUM_IPUS_PER_REPLICA = { "abc", "0" },
    POPDIST_LOCAL_INSTANCE_INDEX = { "abc", "-1" },
  }
  -- Where files are searched.
  local PATHS = { LUA_PATH = true, LUA_CPATH = true }

  it("is refused by name", function()
    for name, values in pairs(REFUSED) do
      for _, value in ipairs(values) do
        assert.matches(name, (says(name, value)), 1, true)
      end
    end
  end)

  it("changes nothing where it is empty", function()
    local plain, out = says("NONE", "")
    assert.matches("torch.Size([1, 1])", out, 1, true)
    for name in pairs(REFUSED) do
      if name ~= "POPTORCH_LOG_LEVEL" and name:find("^%u+TORCH") then
        local err, also = says(name, "")
        assert.equal(out, also, name)
        assert.equal(#plain, #err, name)
      end
    end
  end)

  it("stands in this list if the README names it", function()
    local table_of = files.read("README.md"):match("| environment variable.-\n\n")
    for name in table_of:gmatch("`(%u+_[%u_]+)`") do
      assert.truthy(REFUSED[name] or PATHS[name], name)
    end
  end)
end)
