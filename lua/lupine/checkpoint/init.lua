--- Checkpoints: all that a run needs to go on, in one folder that is there as a whole
--- or not at all.
---
---     local checkpoint = require("lupine.checkpoint")
---     local all = { model = model, optimizer = optimizer, loader = loader,
---       random = checkpoint.random }
---     checkpoint.save("last", all)       -- and values: epoch = 3
---     local values = checkpoint.restore("last", all)
---
--- Objects are whatever has state_dict and load_state_dict (modules, optimizers,
--- schedulers, loaders, GradScaler, models wrapped by poptorch, torch.Generator, a
--- class of one's own); anything else is a value, of plain data and tensors. The format:
--- lupine/checkpoint/folder.lua.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local folder = require("lupine.checkpoint.folder")
local objects = require("lupine.checkpoint.objects")
local random = require("torch.utils.data.random")

local M = {}

-- ---- objects that others do not have -------------------------------------------------

local Random = class.new("Random")

function Random.state_dict()
  return random.state()
end

function Random.load_state_dict(_, state)
  check.table(state, "random: load_state_dict: state_dict")
  random.set_state(state)
end

Random.checkpoint_rank = 5

--- An object to save: the state of torch's global random numbers and of Lua's.
M.random = Random()

local Gradients = class.new("Gradients")

function Gradients:init(module)
  self.module = module
end

function Gradients:state_dict()
  local out = {}
  for name, p in self.module:named_parameters() do
    out[name] = p.grad
  end
  return out
end

function Gradients:load_state_dict(state)
  check.table(state, "gradients: load_state_dict: state_dict")
  for name, p in self.module:named_parameters() do
    p.grad = state[name]
  end
end

local function check_module(module, where)
  errors.check(type(module) == "table" and module.named_parameters, "TypeError",
    "%s: expected a torch.nn.Module, got %s", where, check.describe(module))
  return module
end

--- An object to save: the gradients of a module's parameters, where a checkpoint is made
--- between backward passes that add to them.
---@param module torch.nn.Module
---@return table
function M.gradients(module)
  return Gradients(check_module(module, "gradients"))
end

local Buffers = class.new("Buffers")

function Buffers:init(module)
  self.module = module
end

function Buffers:state_dict()
  local out, saved = {}, self.module:state_dict()
  for name, b in self.module:named_buffers() do
    out[name] = saved[name] == nil and b or nil
  end
  return out
end

function Buffers:load_state_dict(state)
  check.table(state, "buffers: load_state_dict: state_dict")
  for name, b in pairs(self:state_dict()) do
    errors.check(state[name], "KeyError", "buffers: load_state_dict: there is no '%s'", name)
    errors.check(tostring(b.shape) == tostring(state[name].shape), "ValueError",
      "buffers: load_state_dict: '%s': expected a tensor of shape %s, got %s", name,
      tostring(b.shape), check.describe(state[name]))
    b:detach():copy_(state[name])
  end
end

--- An object to save: the buffers of a module that its state_dict leaves out (those that
--- were registered as not persistent); nil if it has none.
---@param module torch.nn.Module
---@return table?
function M.buffers(module)
  local buffers = Buffers(check_module(module, "buffers"))
  return next(buffers:state_dict()) and buffers or nil
end

-- ---- one checkpoint ------------------------------------------------------------------

-- A path as the folder around it and the last name in it.
local function split(path, where)
  path = check.string(path, where .. ": folder"):gsub("(.)/+$", "%1")
  local parent, name = path:match("^(.*)/([^/]+)$")
  parent, name = parent or ".", name or path
  errors.check(name ~= "" and name ~= "." and name ~= ".." and name ~= "/", "ValueError",
    "%s: folder: expected the path of a folder, got '%s'", where, path)
  return parent == "" and "/" or parent, name, path
end

--- Writes a checkpoint: the folder is there with all that was saved, on the disk, when
--- this returns, and until then what was there before. One that is there already is
--- replaced.
--- errors: OSError (nothing is changed then); ValueError for a folder that holds
--- something else; TypeError for what is no plain data
---@param path string the folder
---@param what table<string, any> objects and values by name, which are names of files
---@param info? table plain data that M.info tells without reading the rest
---@return string path
function M.save(path, what, info)
  local parent, name, whole = split(path, "save")
  check.plain_table(info or {}, "save: info")
  local states, names = objects.capture(what, "save")
  local there = folder.is_there(whole)
  core.make_folder(parent)
  folder.write(parent, function(k)
    errors.check(k == 1, "ValueError", "save: '%s' is there and is no checkpoint, it is not "
      .. "replaced", whole)
    return name
  end, states, info or {}, names, there)
  return whole
end

--- The states of a checkpoint's objects and its values, by name, after all its files
--- were found as they were written. No code is run and no random number drawn.
--- errors: OSError, ValueError (it is damaged or not whole; the message says where)
---@param path string
---@return table<string, any> states
---@return table info
function M.load(path)
  local states, info = folder.read(check.string(path, "load: folder"))
  return states, info
end

--- What was given as info.
--- errors: OSError, ValueError
---@param path string
---@return table
function M.info(path)
  return (folder.info(check.string(path, "info: folder")))
end

--- Gives objects the states that they had when a checkpoint was made. All of it is read
--- and found whole before the first object is touched.
--- errors: OSError, ValueError (it is damaged); KeyError for an object that it has not;
--- what an object raises that the state does not fit
---@param path string
---@param what table<string, any> objects by name; values are not looked at
---@return table<string, any> values of the checkpoint that are no objects
---@return table info
function M.restore(path, what)
  check.table(what, "restore: objects")
  local states, info, are_objects = folder.read(check.string(path, "restore: folder"))
  return objects.apply(what, states, are_objects, ("restore: '%s'"):format(path)), info
end

M.Manager = require("lupine.checkpoint.manager")

return require("lupine.base.namespace").close(M, "lupine.checkpoint")
