--- Words come again and again: what a function made of them is kept, of so many.
local MOST = 50000

--- A function that gives what `fn` gives, which the caller does not change.
---@param fn fun(word: string): any not nil
---@param longest? integer bytes of a word that is kept, any unless given
---@return fun(word: string): any
return function(fn, longest)
  local kept, count = {}, 0
  return function(word)
    local value = kept[word]
    if value == nil then
      value = fn(word)
      if not longest or #word <= longest then
        count = count + 1
        if count > MOST then
          kept, count = {}, 1
        end
        kept[word] = value
      end
    end
    return value
  end
end
