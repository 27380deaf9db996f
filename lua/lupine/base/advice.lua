--- What front ends say of an error that they share. Such an error says what is
--- wrong in terms of the compiler and has a `hint` of what would help; a front end
--- knows what its users do about that, by hint:
---   a text      the advice, which is added in brackets
---   a function  of the error, which it changes: an operator or a class of errors
---               that the front end has another name for
local errors = require("lupine.base.errors")

local function speak(words, e)
  local advice = errors.Exception:is(e) and words[e.hint]
  if not advice then
    return e
  end
  e.hint = nil
  if type(advice) == "string" then
    e.message = ("%s (%s)"):format(e.message, advice)
  else
    advice(e)
  end
  return e
end

-- What pcall gave, without a table: it stands around every call of a model.
local function result(words, ok, ...)
  if not ok then
    error(speak(words, (...)), 0)
  end
  return ...
end

--- call(f, ...) = f(...) whose errors speak a front end's words.
---@param words table<string, string|fun(e: table)>
---@return fun(f: function, ...: any): any call
return function(words)
  return function(f, ...)
    return result(words, pcall(f, ...))
  end
end
