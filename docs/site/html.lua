--- HTML: escaping, links between pages, the frame of a page.
local M = {}

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

--- Text as HTML.
---@param text any
---@return string
function M.escape(text)
  return (tostring(text):gsub('[&<>"]', ESCAPES))
end

--- The page of a module or guide.
---@param name string
---@return string
function M.file(name)
  return name .. ".html"
end

--- Links of names to where they are explained: `anchors` has name -> address.
---@param html string
---@param anchors table<string, string>
---@return string
function M.link_codes(html, anchors)
  return (html:gsub("<code>([%w_%.:]+)([^<]*)</code>", function(name, rest)
    local address = anchors[name]
    return address and (rest == "" or rest:find("^%("))
      and ('<a href="%s"><code>%s%s</code></a>'):format(address, name, rest) or nil
  end))
end

-- Text with `code` in backticks.
local function inline(text, anchors)
  local html = M.escape(text):gsub("`([^`]+)`", "<code>%1</code>")
  return M.link_codes(html, anchors)
end
M.inline = inline

local FRAME = [[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<link rel="stylesheet" href="style.css">
</head>
<body>
<header>
<a class="home" href="index.html">lupine %s</a>
<input id="search" type="search" placeholder="Search names and pages" aria-label="Search">
<div id="found" hidden></div>
</header>
<nav>
%s</nav>
<main>
%s
</main>
<script src="index.js"></script>
<script src="search.js"></script>
</body>
</html>
]]

--- A whole page.
---@param title string
---@param version string
---@param nav string
---@param body string
---@return string
function M.page(title, version, nav, body)
  return FRAME:format(M.escape(title), M.escape(version), nav, body)
end

return M
