--- A list of parameters as text, cut at the commas outside brackets and quotes:
--- "a, int[] b, str c='x, y'" and "a, b=(1, 2)" alike.
---@param text string
---@return string[] pieces without blanks at their ends
return function(text)
  local out, depth, quoted, start = {}, 0, false, 1
  for i = 1, #text + 1 do
    local c = text:sub(i, i)
    if c == "'" then
      quoted = not quoted
    elseif not quoted and c:find("^[%(%[]") then
      depth = depth + 1
    elseif not quoted and c:find("^[%)%]]") then
      depth = depth - 1
    elseif not quoted and depth == 0 and (c == "," or c == "") then
      out[#out + 1] = text:sub(start, i - 1):match("^%s*(.-)%s*$")
      start = i + 1
    end
  end
  return out
end
