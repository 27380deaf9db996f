std = "lua54"
max_line_length = 100
unused_args = true
self = false
exclude_files = { "build" }
files["spec"] = { std = "lua54+busted" }
