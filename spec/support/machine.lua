--- A simulated machine of a spec's own: LUPINE_DEVICES names a new folder.
local files = require("spec.support.files")
local M = {}

local getenv, folder = os.getenv, nil
local values = {}

--- An environment variable as os.getenv shows it, until finish; false: none.
function M.set(name, value)
  values[name] = value
end

--- Begins; returns the folder.
function M.begin()
  local p = assert(io.popen("mktemp -d"))
  folder = p:read("l")
  p:close()
  values = { LUPINE_DEVICES = folder, LUPINE_IPUS = false }
  os.getenv = function(name) -- luacheck: ignore 122
    if values[name] ~= nil then
      return values[name] or nil
    end
    return getenv(name)
  end
  return folder
end

--- What models and devices of the spec are left gives back its IPUs.
function M.finish()
  collectgarbage()
  os.getenv = getenv -- luacheck: ignore 122
  files.remove(folder)
end

return M
