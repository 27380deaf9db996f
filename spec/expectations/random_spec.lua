--- Reading a file of any kind and building a report draw no random numbers, neither
--- torch's nor math.random's.
local core = require("lupine.core")
local files = require("spec.support.files")
local lupine = require("lupine")
local nn = require("torch.nn")
local popart = require("popart")
local poptorch = require("poptorch")
local torch = require("torch")

local folder, saved, model

local Net = nn.Module:extend("ReadNet")

function Net:init()
  self.fc, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)
end

function Net:forward(x, target)
  local y = self.drop(self.fc(x))
  return y, nn.functional.mse_loss(y, target)
end

local BERT = { vocab_size = 40, hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2,
  intermediate_size = 24, max_position_embeddings = 12 }

local function at(name)
  return folder .. "/" .. name
end

setup(function()
  folder = files.folder()
  local net, x = Net(), torch.ones(2, 4)
  saved = net
  torch.save(net:state_dict(), at("weights.pt"))
  lupine.safetensors.save_file({ x = x }, at("x.safetensors"))
  lupine.numpy.save(at("x.npy"), x)
  lupine.numpy.savez_compressed(at("x.npz"), { x = x })
  lupine.onnx.export(nn.Sequential(net.fc), { x }, at("fc.onnx"))
  lupine.checkpoint.save(at("checkpoint"), { model = net, random = lupine.checkpoint.random })
  files.write(at("x.csv"), "a,b\n1,2\n")
  files.write(at("poptorch.conf"), "deviceIterations(1)\n")
  core.make_folder(at("images"))
  core.make_folder(at("images/one"))
  files.write(at("images/one/a.png"), files.read("spec/io/images/rgb.png"))
  core.make_folder(at("bert"))
  local bert = lupine.models.BertModel(BERT)
  files.write(at("bert/config.json"), core.json_encode(BERT))
  lupine.safetensors.save_file(bert:state_dict(), at("bert/model.safetensors"))

  model = poptorch.trainingModel(net, nil, torch.optim.Adam(net:parameters()))
  model(x, x)
  model:save(at("model.poptorch"))
end)
teardown(function()
  files.remove(folder)
end)

local function read_all(dataset)
  for i = 0, #dataset - 1 do
    local _ = dataset[i]
  end
end

-- Whatever reads a file or builds a report.
local QUIET = {
  ["torch.load of a state dictionary"] = function() torch.load(at("weights.pt")) end,
  ["load_state_dict"] = function()
    model:load_state_dict(torch.load(at("weights.pt")))
  end,
  ["safetensors"] = function() lupine.safetensors.load_file(at("x.safetensors")) end,
  ["numpy, .npy"] = function() lupine.numpy.load(at("x.npy")) end,
  ["numpy, .npz"] = function() return lupine.numpy.load(at("x.npz")).x:sum() end,
  ["csv"] = function() lupine.csv.read(at("x.csv")) end,
  ["images"] = function()
    lupine.images.read("spec/io/images/rgb.png")
    lupine.images.read("spec/io/images/color.jpg")
  end,
  ["ImageFolder"] = function() read_all(lupine.datasets.ImageFolder(at("images"))) end,
  ["FashionMNIST"] = function()
    local _ = lupine.datasets.FashionMNIST({ train = false })[0]
  end,
  ["KingJamesBible"] = function() lupine.datasets.KingJamesBible() end,
  ["onnx"] = function() lupine.onnx.load(at("fc.onnx")) end,
  ["onnx, as a table"] = function() lupine.onnx.read(at("fc.onnx")) end,
  ["a popart session"] = function()
    local builder = popart.Builder(at("fc.onnx"))
    popart.InferenceSession({ fnModel = builder:getModelProto(),
      dataFlow = popart.DataFlow(1, builder:getOutputTensorIds()),
      deviceInfo = popart.DeviceManager():createIpuModelDevice({}) })
  end,
  ["a checkpoint"] = function()
    lupine.checkpoint.info(at("checkpoint"))
    lupine.checkpoint.load(at("checkpoint"))
    lupine.checkpoint.restore(at("checkpoint"), { model = saved })
  end,
  ["options"] = function() poptorch.Options():loadFromFile(at("poptorch.conf")) end,
  ["an executable"] = function() poptorch.load(at("model.poptorch")) end,
  ["a pretrained model"] = function() lupine.models.BertModel:from_pretrained(at("bert")) end,
  ["a tokenizer"] = function()
    lupine.tokenizers.Tokenizer.from_file("spec/fuzz/corpus/tokenizer/wordpiece")
  end,
  ["a report"] = function()
    local report = model:report()
    local _ = report:summary() .. report:json() .. tostring(report) .. #report:nodes()
  end,
  ["a profile"] = function()
    lupine.profile.start()
    local p = lupine.profile.stop()
    local _ = p:text()
    p:write_trace(at("trace.json"))
  end,
}

describe("the random numbers are left where they were by", function()
  for name, read in pairs(QUIET) do
    it(name, function()
      torch.manual_seed(3)
      math.randomseed(3)
      local now, lua = torch.get_rng_state(), core.lua_random()
      read()
      assert.is_true(torch.equal(now, torch.get_rng_state()))
      assert.is_true(torch.equal(lua, core.lua_random()))
    end)
  end
end)
