--- Operators by name: popart.OperatorIdentifier, getSupportedOperations, and the names that
--- operators get, DebugContext.
---
--- Source: PopART Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local operators = require("lupine.onnx.operators")
local signatures = require("lupine.base.signatures")

local M = {}

local DOMAINS = { [""] = "ai.onnx" }

--- Names an operator: its domain ("ai.onnx"), type and the version that it is there since.
--- source: PopART Python API, OperatorIdentifier
---@class popart.OperatorIdentifier
---@field domain string
---@field type string
---@field version integer
---@overload fun(domain: string, type: string, version: integer): popart.OperatorIdentifier
local OperatorIdentifier = closed.close(class.new("OperatorIdentifier"))
M.OperatorIdentifier = OperatorIdentifier
signatures.note(OperatorIdentifier, "OperatorIdentifier(domain, type, version)", 1)

function OperatorIdentifier:init(...)
  local v = check.arguments("OperatorIdentifier", { "domain", "type", "version" }, nil, ...)
  self.domain = check.string(v[1], "OperatorIdentifier: domain")
  self.type = check.string(v[2], "OperatorIdentifier: type")
  self.version = check.int(v[3], "OperatorIdentifier: version", { min = 1 })
end

function OperatorIdentifier.__eq(a, b)
  return a.domain == b.domain and a.type == b.type and a.version == b.version
end

function OperatorIdentifier.__tostring(self)
  return ("%s.%s:%d"):format(self.domain, self.type, self.version)
end

--- The operators that models may have, a row for each version that changed one.
--- source: PopART Python API, getSupportedOperations
---@param ... any includeInternal (boolean): there are no others here
---@return popart.OperatorIdentifier[]
function M.getSupportedOperations(...)
  check.bool(check.one("getSupportedOperations", "includeInternal", ...),
    "getSupportedOperations: includeInternal")
  local list = {}
  operators.each(function(domain, name, row)
    list[#list + 1] = OperatorIdentifier(DOMAINS[domain] or domain, name, row.since)
  end)
  return list
end

--- The name that operators of a builder get: what their debugContext is.
--- source: PopART Python API, DebugContext
---@param ... any name (string, "")
---@return string
function M.DebugContext(...)
  local name = check.one("DebugContext", "name", ...)
  return check.string(name == nil and "" or name, "DebugContext: name")
end

return M
