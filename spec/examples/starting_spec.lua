-- The examples that people start from: each script is run with few steps, each run file by
-- --dry-run, and what their models and data say is compared with formulas and PyTorch.
local helper = require("spec.helper")
local lupine = require("lupine")
local program = require("spec.support.program")
local torch = require("torch")

local NAMES = { "gan", "gpt", "pictures", "tagging", "transfer", "vae" }

local function of(name, file)
  return dofile(("examples/runs/%s/%s.lua"):format(name, file))
end

-- Where the pictures of that example are drawn, once.
local shapes

setup(function()
  shapes = os.tmpname()
  os.remove(shapes)
end)

teardown(function()
  program.shell("rm -rf " .. program.quote(shapes))
end)

-- What a script prints last; it has to end well, and to write its picture.
local function run(name, flags)
  local picture = os.tmpname()
  local out, err, code = program.shell(("%s examples/%s.lua %s --picture %s"):format(program.host,
    name, flags, picture))
  assert.equal(0, code, err)
  local file <close> = assert(io.open(picture, "rb"))
  local start = file:read(4)
  os.remove(picture)
  assert.truthy(start == "\137PNG" or start == "<svg" or start == "<?xm", name)
  return out:match("([^\n]*)\n$"), out
end

local function numbers(line, form)
  local found = { line:match("^" .. form:gsub("%%f", "([%%d.]+)") .. "$") }
  assert.truthy(found[1], line)
  for i, text in ipairs(found) do
    found[i] = tonumber(text)
  end
  return table.unpack(found)
end

describe("pictures", function()
  it("of folders are learnt", function()
    local classes, accuracy = numbers(run("pictures", "--epochs 1 --folder " .. shapes),
      "pictures: classes=%f accuracy=%f")
    assert.equal(4, classes)
    assert.is_true(accuracy > 0.2)
  end)

  it("are augmented for training alone", function()
    local folder = of("pictures", "data").folder
    local plain, augmented = folder(shapes, "train"), folder(shapes, "train", true)
    assert.same({ "circle", "cross", "square", "triangle" }, plain.classes)
    assert.equal(200, #plain.samples)
    assert.is_true(torch.equal((plain:__getitem__(3)), (plain:__getitem__(3))))
    assert.is_false(torch.equal((augmented:__getitem__(3)), (augmented:__getitem__(3))))
  end)
end)

describe("gpt", function()
  it("begins with all characters equally likely and goes on with a text", function()
    local last, out = run("gpt", "--steps 3")
    local first, later = numbers(last, "gpt: first_loss=%f validation_loss=%f")
    assert.near(math.log(63), first, 0.15)
    assert.is_true(later < first)
    for _, temperature in ipairs({ "0.5", "1.0" }) do
      local text = out:match("temperature " .. temperature .. ": (And God said, .*)")
      assert.is_true(#text >= 128)
    end
  end)
end)

describe("vae", function()
  it("draws better than even grey", function()
    local first, last = numbers(run("vae", "--epochs 1 --pictures 6000"),
      "vae: first_loss=%f last_loss=%f")
    assert.equal(first, last)
    assert.is_true(last < 0.65 * 784 * math.log(2))
  end)
end)

describe("gan", function()
  local gan, data = of("gan", "model"), of("gan", "data")

  it("tells how well points lie", function()
    local found, near = gan.score(data.points(20000, 5).tensors[1], data.middles(), data.deviation)
    assert.equal(8, found)
    assert.near(1 - math.exp(-4.5), near, 0.003) -- within three deviations in the plane
    local one = data.middles()[0]:expand({ 100, 2 })
    assert.same({ 1, 1 }, { gan.score(one, data.middles(), data.deviation) })
  end)

  it("has both losses' gradients in one", function()
    torch.manual_seed(3)
    local pair, x = gan.GAN(2, 16), data.points(64, 1).tensors[1]
    torch.manual_seed(4)
    local _, both = pair(x)
    both:backward()
    torch.manual_seed(4)
    local made, D = pair:make(64), pair.discriminator
    local of_d = gan.judged(D(x), true) + gan.judged(D(made:detach()), false)
    assert.near(of_d:item(), both:item(), 1e-5)
    local function check(module, loss)
      local wanted = torch.autograd.grad(loss, module:parameters())
      for i, p in ipairs(module:parameters()) do
        helper.near(p.grad, wanted[i], { 1e-6, 1e-4 })
      end
    end
    check(D, of_d)
    check(pair.generator, gan.judged(D(made), true))
  end)

  it("runs", function()
    local found, near = numbers(run("gan", "--steps 100"), "gan: found=%f near=%f")
    assert.is_true(found <= 8 and near <= 1)
  end)
end)

describe("tagging", function()
  local data = of("tagging", "data")

  it("finds most parts of speech in an epoch", function()
    local words, f1 = numbers(run("tagging", "--epochs 1"), "tagging: words=%f f1=%f")
    assert.equal(#data.words - 1, words)
    assert.is_true(f1 > 0.8)
  end)

  it("reads a sentence as if it were alone", function()
    torch.manual_seed(1)
    local model = of("tagging", "model").Tagger(#data.words, #data.tags, 8)
    local words, lengths = table.unpack(data.sentences(5, 3).tensors)
    local together = model(words, lengths)
    for i = 0, 4 do
      local n = lengths[i]:item()
      local alone = model(words[i]:narrow(0, 0, n):unsqueeze(0), torch.tensor({ n }))
      helper.near(together[i]:narrow(1, 0, n), alone[0], { 1e-6, 1e-5 })
    end
  end)
end)

describe("transfer", function()
  it("leaves the checkpoint's layers as they are", function()
    local taken, new = numbers(run("transfer", "--epochs 5"),
      "transfer: accuracy=%f from_nothing=%f")
    assert.is_true(taken > 0.8 and taken > new)
  end)

  it("is the same from the run file", function()
    local taken = numbers(run("transfer", "--epochs 3"), "transfer: accuracy=%f from_nothing=%f")
    local folder = os.tmpname()
    os.remove(folder)
    local out, err, code = program.shell(("host=$(realpath %s); cd examples/runs/transfer; "
      .. "$host run run.yaml epochs=3 logging.progress=false folder=%s; c=$?; rm -r %s; exit $c")
      :format(program.host, folder, folder))
    assert.equal(0, code, err)
    local accuracy = out:match("epoch 3  step 12  validation.accuracy ([%d.]+)")
    assert.near(taken, tonumber(accuracy), 6e-4) -- as many digits as are printed
  end)

  it("has the model that PyTorch wrote", function()
    local path = "examples/runs/transfer/pretrained.safetensors"
    local model = of("transfer", "model").Net(6)
    model:load_state_dict(lupine.safetensors.load_file(path))
    model:eval()
    local images, labels = lupine.datasets.FashionMNIST(false)
    local rows = labels:lt(7):logical_and(labels:ne(5)):nonzero():flatten()
    local x = ((images[rows]:to(torch.float32) / 255 - 0.286) / 0.353):unsqueeze(1)
    local due = labels[rows]
    due = torch.where(due:eq(6), torch.full_like(due, 5), due)
    -- pretrain.py printed this of the same 6000 pictures
    assert.near(0.839833, model(x):argmax(1):eq(due):float():mean():item(), 4e-4)
  end)
end)

describe("the run file", function()
  for _, name in ipairs(NAMES) do
    it("of " .. name .. " is whole", function()
      local folder = name == "pictures"
        and (" data.train.args.root=%s data.validation.args.root=%s"):format(shapes, shapes) or ""
      local out, err, code = program.shell(("host=$(realpath %s); cd examples/runs/%s; "
        .. "$host run run.yaml --dry-run%s"):format(program.host, name, folder))
      assert.equal(0, code, err)
      assert.matches("dry run: all is well\n$", out)
    end)
  end
end)
