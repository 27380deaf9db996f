--- What functions take and give, in PyTorch's schema notation. Operators say it
--- by their forms (core.form_list()), which are the one place for them; here
--- stand the functions of the core that are no operator. The REPL's ?NAME and
--- the annotations for editors (lupine.annotations) read both.
local core = require("lupine.core")
local pieces = require("lupine.base.pieces")

local M = {}

-- Methods of tensors: NAME(ARGUMENTS) -> RESULTS, further lines of it indented,
-- then lines with the description.
local METHODS = [[
size(Tensor self, int? dim=None) -> Any
  -- The sizes, or that of one dimension.
stride(Tensor self, int? dim=None) -> Any
  -- Elements from one index to the next.
dim(Tensor self) -> int
  -- The number of dimensions.
ndimension(Tensor self) -> int
  -- The number of dimensions.
numel(Tensor self) -> int
  -- The number of elements.
nelement(Tensor self) -> int
  -- The number of elements.
element_size(Tensor self) -> int
  -- Bytes of one element.
storage_offset(Tensor self) -> int
  -- Elements of the storage before the first one.
is_contiguous(Tensor self) -> bool
  -- Whether the elements lie row by row.
is_floating_point(Tensor self) -> bool
  -- Whether the dtype is a floating one.
is_complex(Tensor self) -> bool
  -- False: there are no complex dtypes.
is_same_size(Tensor self, Tensor other) -> bool
  -- Whether both have one shape.
data_ptr(Tensor self) -> int
  -- The address of the first element.
to(Tensor self, Any other, *, ScalarType? dtype=None, Device? device=None, bool copy=False, bool
    non_blocking=False) -> Tensor
  -- Converted to a dtype, a device, or those of another tensor.
cpu(Tensor self) -> Tensor
  -- On the host.
type(Tensor self, ScalarType? dtype=None) -> Any
  -- The type's name, or converted to a dtype.
type_as(Tensor self, Tensor other) -> Tensor
  -- Converted to another tensor's dtype.
float(Tensor self) -> Tensor
  -- As float32.
double(Tensor self) -> Tensor
  -- As float64.
half(Tensor self) -> Tensor
  -- As float16.
bfloat16(Tensor self) -> Tensor
  -- As bfloat16.
long(Tensor self) -> Tensor
  -- As int64.
int(Tensor self) -> Tensor
  -- As int32.
short(Tensor self) -> Tensor
  -- As int16.
char(Tensor self) -> Tensor
  -- As int8.
byte(Tensor self) -> Tensor
  -- As uint8.
bool(Tensor self) -> Tensor
  -- As bool.
contiguous(Tensor self) -> Tensor
  -- Itself if its elements lie row by row, else a copy.
copy_(Tensor self, Tensor src, bool non_blocking=False) -> Tensor
  -- Takes over the values of src, converted and broadcast.
repeat_(Tensor self, int[] repeats) -> Tensor
  -- Tiled; x:repeat is no Lua.
item(Tensor self) -> Any
  -- The only element as a Lua value.
tolist(Tensor self) -> Any
  -- Nested lists of Lua values, or one value.
tobytes(Tensor self) -> str
  -- The elements as bytes, row by row.
iter(Tensor self) -> Function
  -- An iterator over the slices along dimension 0.
backward(Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False,
    Tensor[]? inputs=None) -> None
  -- Adds the gradients of this tensor to the leaves' grad.
requires_grad_(Tensor self, bool requires_grad=True) -> Tensor
  -- Whether gradients are wanted.
retain_grad(Tensor self) -> None
  -- Keeps the gradient of a tensor that is no leaf.
free(Tensor self) -> None
  -- Gives the memory back now; the tensor cannot be used any more.
resize_(Tensor self, int[] size) -> Tensor
  -- Another shape in place; new elements are not set.
resize_as_(Tensor self, Tensor the_template) -> Tensor
  -- The shape of another tensor, in place.
set_(Tensor self, Tensor? source=None) -> Tensor
  -- Takes another tensor's memory and shape.
detach_(Tensor self) -> Tensor
  -- Cut off from what it was computed of.
register_hook(Tensor self, Function hook) -> Any
  -- hook(grad) runs when the gradient is known and may replace it.
register_post_accumulate_grad_hook(Tensor self, Function hook) -> Any
  -- hook(x) runs after a leaf's grad was added to.
]]

local FUNCTIONS = [[
tensor(Any data, *, ScalarType? dtype=None, Device? device=None, bool requires_grad=False) ->
    Tensor
  -- A new tensor of a number or of nested lists.
as_tensor(Any data, *, ScalarType? dtype=None, Device? device=None) -> Tensor
  -- The tensor itself where nothing changes.
asarray(Any data, *, ScalarType? dtype=None, Device? device=None) -> Tensor
  -- The tensor itself where nothing changes.
frombuffer(str buffer, *, ScalarType dtype, int count=-1, int offset=0, bool
    requires_grad=False) -> Tensor
  -- A copy of a string's bytes as elements.
is_tensor(Any obj) -> bool
  -- Whether it is a tensor.
Size(int[] sizes) -> Size
  -- A shape: a list of sizes that compares by value.
device(str type) -> Device
  -- 'cpu', 'meta' or 'ipu'.
slice(int? start=None, int? stop=None, int? step=None) -> Any
  -- Part of an index: x[{torch.slice(0, 5), 2}].
Generator(Device? device=None) -> Generator
  -- A random state of its own, for {generator = g}.
manual_seed(int seed) -> Generator
  -- Starts the random numbers anew.
initial_seed() -> int
  -- The seed in force.
seed() -> int
  -- A seed from the clock, which it returns.
get_rng_state() -> Any
  -- The random state.
set_rng_state(Any new_state) -> None
  -- Goes on from a random state.
get_num_threads() -> int
  -- Threads of the kernels.
set_num_threads(int threads) -> None
  -- Threads of the kernels.
set_float32_matmul_precision(str precision) -> None
  -- Float32 products in full ("highest"), or by bfloat16 where that is quicker.
get_float32_matmul_precision() -> str
  -- How precise float32 products are.
use_deterministic_algorithms(bool mode) -> None
  -- Equal bits at any number of threads.
are_deterministic_algorithms_enabled() -> bool
  -- Whether bits are equal at any number of threads.
set_default_dtype(ScalarType d) -> None
  -- The dtype of tensors made of floats.
get_default_dtype() -> ScalarType
  -- The dtype of tensors made of floats.
is_grad_enabled() -> bool
  -- Whether gradients are recorded.
is_anomaly_enabled() -> bool
  -- Whether backward() looks for NaN.
set_autocast(ScalarType? dtype=None, str? rules=None) -> None
  -- The type that automatic casting casts to, by rules of its own or torch.autocast's; None: off.
autocast() -> Any
  -- The type that automatic casting casts to and its rules, if it is on.
cast_rules(Any casts, Any mixed) -> str
  -- Rules for set_autocast: casts by names of operators, and those of mixed operands.
promote_types(ScalarType type1, ScalarType type2) -> ScalarType
  -- The dtype that holds both.
can_cast(ScalarType from_, ScalarType to) -> bool
  -- Whether a conversion keeps the kind of number.
result_type(Any tensor1, Any tensor2) -> ScalarType
  -- The dtype of an operation on both.
memory() -> Any
  -- {live, peak, cached}: bytes of all tensors, now and at most; free ones that the heap keeps.
]]

local GENERATOR = [[
manual_seed(Generator self, int seed) -> Generator
  -- Starts the random numbers anew.
initial_seed(Generator self) -> int
  -- The seed in force.
seed(Generator self) -> int
  -- A seed from the clock, which it returns.
get_state(Generator self) -> Any
  -- The state.
set_state(Generator self, Any new_state) -> Generator
  -- Goes on from a state.
]]

--- Fields of a tensor: {name, type, description}.
M.properties = {
  { "shape", "Size", "The sizes." },
  { "dtype", "ScalarType", "The type of an element." },
  { "device", "Device", "Where the elements are." },
  { "requires_grad", "bool", "Whether gradients are wanted; assignable." },
  { "grad", "Tensor?", "The gradient so far; assignable." },
  { "grad_fn", "Any", "The operator that made it, if gradients go through it." },
  { "is_leaf", "bool", "Whether no recorded operator made it." },
  { "data", "Tensor", "The same elements without a history; assignable." },
  { "T", "Tensor", "The dimensions in reverse." },
  { "mT", "Tensor", "The last two dimensions swapped." },
  { "H", "Tensor", "The last two dimensions swapped." },
  { "ndim", "int", "The number of dimensions." },
  { "itemsize", "int", "Bytes of one element." },
  { "nbytes", "int", "Bytes of all elements." },
  { "is_meta", "bool", "Whether it has a shape and no elements." },
  { "is_cpu", "bool", "Whether the elements are on the host." },
  { "is_cuda", "bool", "False." },
  { "_version", "int", "How often it was written in place." },
  { "real", "Tensor", "Itself." },
  { "mH", "Tensor", "The transpose of the last two dimensions." },
  { "retains_grad", "bool", "Was retain_grad called?" },
  { "is_ipu", "bool", "False." },
  { "is_mps", "bool", "False." },
  { "is_xpu", "bool", "False." },
  { "is_xla", "bool", "False." },
  { "is_mkldnn", "bool", "False." },
  { "is_nested", "bool", "False." },
  { "is_quantized", "bool", "False." },
  { "is_sparse", "bool", "False." },
  { "is_sparse_csr", "bool", "False." },
  { "_base", "Tensor?", "What a view is of." },
}

--- A schema's arguments {kind, name, optional, list, default, kw_only} and
--- results {kind, name}, from its text.
---@param text string
---@return {name: string, arguments: table[], results: table[]}
function M.parse(text)
  local name, inside, out = text:match("^([%w_%.]+)(%b())%s*%->%s*(.-)%s*$")
  out = out:gsub("%s@%a+.*$", ""):gsub("%s;.*$", "")
  local form = { name = name:match("^[^%.]+"), arguments = {}, results = {} }
  local kw_only = false
  for _, piece in ipairs(pieces(inside:sub(2, -2))) do
    if piece == "*" then
      kw_only = true
    elseif piece ~= "" then
      local kind, holes, list, optional, rest =
        piece:match("^(%a+)(%??)(%[?%d*%]?)(%??)%s+(.*)$")
      optional = list == "" and holes or optional -- Tensor?[] is a list with holes
      local arg, default = rest:match("^([%w_]+)=(.*)$")
      form.arguments[#form.arguments + 1] = { kind = kind, list = list ~= "" and list or nil,
        optional = optional ~= "" or default ~= nil, name = arg or rest, default = default,
        kw_only = kw_only }
    end
  end
  for _, piece in ipairs(pieces(out:match("^%((.*)%)$") or out)) do
    local kind, list, result = piece:match("^(%a+)(%[?%d*%]?)%s*([%w_]*)$")
    form.results[#form.results + 1] = { kind = kind, list = list ~= "" and list or nil,
      name = result ~= "" and result or nil }
  end
  return form
end

local function read(lines)
  local list, text = {}, {}
  for line in lines:gmatch("[^\n]+") do
    local doc, last = line:match("^  %-%- (.*)$"), list[#list]
    if not doc then
      text[#text + 1] = line:match("^%s*(.*)$")
    elseif #text == 0 then
      last.doc = last.doc .. "\n" .. doc
    else
      local form = M.parse(table.concat(text, " "))
      form.text, form.doc = table.concat(text, " "), doc
      list[#list + 1], text = form, {}
    end
  end
  return list
end

--- The functions of the core that are no operators, parsed: PyTorch's and
--- lupine's own.
M.methods, M.functions, M.generator = read(METHODS), read(FUNCTIONS), read(GENERATOR)
M.own = read(require("lupine.base.core_functions"))

-- Where forms are found: their flag, the table of their functions.
local SURFACES = {
  { flag = "function", values = core.forms.functions, label = "torch." },
  { flag = "nn", values = core.forms.nn, label = "torch.nn.functional." },
  { flag = "special", values = core.forms.special, label = "torch.special." },
  { flag = "linalg", values = core.forms.linalg, label = "torch.linalg." },
  { flag = "method", values = core.methods, label = "Tensor:" },
  { flag = "inplace", values = core.methods, suffix = "_", label = "Tensor:" },
}
M.surfaces = SURFACES

--- A form's text without what follows the results.
---@param text string
---@return string
function M.shown(text)
  return (text:gsub("%s@%a+.*$", ""):gsub("%s;.*$", ""))
end

-- Keywords that stand in no form's text, in the order of the core's messages:
-- the form's flag, how they are written, whether methods lack them.
local KEYWORDS = {
  { "out", "Tensor? out=None", true },
  { "makes", "bool requires_grad=False, Device? device=None" },
  { "draws", "Generator? generator=None" },
}
local METHOD = { method = true, inplace = true }

-- A form's text as a surface has it, with such keywords.
local function in_full(form, surface)
  local text = M.shown(form.text)
  local head, tail = text:match("^(.*)(%) %-> .*)$")
  for _, k in ipairs(head and KEYWORDS or {}) do
    if form[k[1]] and not (k[3] and METHOD[surface.flag]) then
      head = head .. (head:find("%($") and "" or ", ")
        .. (head:find("*,", 1, true) and "" or "*, ") .. k[2]
    end
  end
  return head and head .. tail or text
end

--- The name under which a surface has a form, if it has: operators that change
--- their receiver's shape (transpose_) have no form of their own.
---@param surface table
---@param form table
---@param of_inplace table<string, boolean> names of all in-place forms
---@return string?
function M.name_at(surface, form, of_inplace)
  local name = form.name .. (surface.suffix or "")
  local here = form[surface.flag] or surface.flag == "inplace" and form.method
    and not of_inplace[form.name] and form.name ~= "repeat"
  return here and type(surface.values[name]) == "function" and name or nil
end

--- Names of all in-place forms, for name_at.
---@param forms table[]
---@return table<string, boolean>
function M.inplace_names(forms)
  local names = {}
  for _, form in ipairs(forms) do
    names[form.name] = names[form.name] or form.inplace
  end
  return names
end

local index
local stands_for = setmetatable({}, { __mode = "k" }) -- wrapper -> function

local function note(f, text, doc)
  f = stands_for[f] or f
  index[f] = index[f] or { texts = {}, seen = {}, doc = doc }
  if not index[f].seen[text] then
    index[f].seen[text] = true
    table.insert(index[f].texts, text)
  end
end

local function build()
  index = {}
  local forms = core.form_list()
  local of_inplace = M.inplace_names(forms)
  for _, form in ipairs(forms) do
    for _, s in ipairs(SURFACES) do
      local f = s.values[M.name_at(s, form, of_inplace) or 0]
      if f then
        local text = in_full(form, s)
        note(f, s.suffix and text:gsub("^[%w_]+", "%0" .. s.suffix) or text)
      end
    end
  end
  for _, part in ipairs({ { M.methods, core.methods }, { M.functions, core }, { M.own, core },
    { M.generator, getmetatable(core.Generator()).__index } }) do
    for _, form in ipairs(part[1]) do
      local f = type(part[2]) == "table" and part[2][form.name]
      if f then
        note(f, form.text, form.doc)
      end
    end
  end
end

--- The forms of a function of the core, or of one that stands for it, as text,
--- and its description.
---@param f any
---@return string[]? texts
---@return string? doc
function M.of(f)
  if type(f) ~= "function" then
    return nil
  end
  if not index then
    build()
  end
  local entry = index[stands_for[f] or f]
  return entry and entry.texts, entry and entry.doc
end

-- Functions and classes that take Python's arguments: value -> {text, source}.
local noted = setmetatable({}, { __mode = "k" })

--- Notes how a function or class is called that a helper makes, or that binds
--- its arguments itself.
---@param value function|table
---@param text string "name(input, dim=-1)"
---@param level? integer where it stands in the source: 2 (default) is the
---        helper's caller, 1 the caller of note
---@param doc? string what it does, where no comment can say it
function M.note(value, text, level, doc)
  noted[value] = { text = text, doc = doc, source = debug.getinfo((level or 2) + 1, "S").source }
end

--- A function that stands for another has its signature.
---@param value any
---@param other any
function M.same(value, other)
  noted[value], stands_for[value] = noted[other], other
end

--- What `note` was told.
---@param value any
---@return {text: string, source: string}?
function M.noted(value)
  return value ~= nil and noted[value] or nil
end

return M
