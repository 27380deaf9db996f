-- Types and shapes as ONNX names them.
local helper = require("spec.helper")
local tensor_info = require("popart.tensor_info")
local torch = require("torch")

local TensorInfo, InputShapeInfo = tensor_info.TensorInfo, tensor_info.InputShapeInfo
local refuses = helper.refuses

describe("popart.TensorInfo", function()
  it("takes names, dtypes and tensors", function()
    assert.equal(TensorInfo("FLOAT", { 2, 3 }), TensorInfo(torch.zeros(2, 3)))
    assert.equal(TensorInfo("FLOAT16", "(4,5)"), TensorInfo(torch.half, { 4, 5 }))
    assert.equal(TensorInfo("INT64", {}), TensorInfo({ dataType = "int64", shape = {} }))
    assert.equal("INT32 [2, 1]", tostring(TensorInfo(torch.int32, torch.zeros(2, 1).shape)))
    assert.equal(0, TensorInfo("FLOAT", { 0, 2 }):nelms())
  end)

  it("names every dtype of torch and back", function()
    for _, name in ipairs({ "uint8", "int8", "int16", "int32", "int64", "bool", "float16",
      "bfloat16", "float32", "float64" }) do
      local info = TensorInfo(torch[name], { 1 })
      assert.equal(name, info:data_type_lcase())
      assert.equal(torch[name], info:dataType())
      assert.equal(torch[name], TensorInfo(info:data_type(), {}):dataType())
      assert.equal(torch.zeros({ 3 }, { dtype = torch[name] }).nbytes,
        TensorInfo(torch[name], { 3 }):nbytes())
    end
  end)

  it("refuses types and shapes that are none", function()
    refuses("popart_exception", "no type 'FLOT' %(nearest: 'FLOAT'%)", TensorInfo, "FLOT", { 1 })
    refuses("popart_exception", "^TensorInfo: dataType: there are no tensors of the type UINT32%. "
      .. "Allowed: BFLOAT16, BOOL, DOUBLE,.*UINT8$", function()
      TensorInfo("UINT32", { 1 }):dataType()
    end)
    local builder = require("popart").Builder()
    refuses("popart_exception", "^addInputTensor: dataType: there are no tensors of the type "
      .. "UINT32%. Allowed: BFLOAT16,", builder.addInputTensor, builder, "UINT32", { 2 })
    refuses("TypeError", "expected a type's name or a dtype", TensorInfo, 3, { 1 })
    refuses("TypeError", "Can not create TensorInfo", TensorInfo, "FLOAT")
    refuses("TypeError", "shape: size 1: expected int", TensorInfo, "FLOAT", { 1, 2.5 })
    refuses("ValueError", "shape: size 0: expected int >= 0", TensorInfo, "FLOAT", { -1 })
    refuses("ValueError", "expected \"%(2, 3%)\"", TensorInfo, "FLOAT", "2,3")
    refuses("ValueError", "too many elements", TensorInfo, "FLOAT", { 1 << 40, 1 << 40 })
    refuses("IndexError", "dimension 2, tensor of rank 2", function()
      TensorInfo("FLOAT", { 1, 2 }):dim(2)
    end)
  end)
end)

describe("popart.InputShapeInfo", function()
  it("keeps what it is told", function()
    local infos = InputShapeInfo()
    infos:add("in", TensorInfo("FLOAT", { 2 }))
    assert.is_true(infos:has("in"))
    assert.is_false(infos:has("out"))
    assert.same({ 2 }, infos:get("in"):shape())
    assert.same({ "in" }, infos:getAllTensorIds())
    refuses("popart_exception", "No input shape info for Tensor `inn'.*nearest: 'in'", infos.get,
      infos, "inn")
    refuses("TypeError", "info: expected TensorInfo, got a list", infos.add, infos, "x", { 2 })
  end)
end)
