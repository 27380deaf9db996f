--- The commands of the host program: words in the place of a script, as in
--- `lupine run`. A module's run() gets the words that follow and gives the exit code
--- (nothing: 0):
---
---   0    done
---   1    an error
---   2    the command line is wrong
---   75   stopped early, with all that going on takes saved (EX_TEMPFAIL: try again)
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")

local M = { DONE = 0, ERROR = 1, USAGE = 2, INTERRUPTED = 75 }

-- In the order of the help.
local ROWS = {
  { "run", "lupine.commands.run", "train what a run file says, or go on with a run" },
  { "new", "lupine.commands.new", "write a small project that `lupine run` trains" },
  { "sweep", "lupine.commands.sweep", "train a run file with many values of its keys" },
  { "runs", "lupine.commands.runs", "list, compare and delete runs" },
  { "plot", "lupine.commands.plot", "draw the curves of runs" },
  { "report", "lupine.commands.report", "show what the simulated system says of a program" },
  { "plan", "lupine.commands.plan", "try how many IPUs a script's program needs, and how" },
  { "profile", "lupine.profile.command", "run a script and show where its time goes" },
  { "info", "lupine.devices.command",
    "list the devices of the simulated machine and who has them" },
}

--- What runs a command; nil: the word is none, and a script's name.
--- error: ValueError for a word that is near a command, and no file
---@param word string
---@return function?
function M.find(word)
  local words = {}
  for _, row in ipairs(ROWS) do
    if row[1] == word then
      return require(row[2]).run
    end
    words[#words + 1] = row[1]
  end
  local near = check.nearest(word, words)
  local script <close> = near ~= "" and io.open(word) or nil
  errors.check(near == "" or script, "ValueError", "there is no command and no file '%s'%s", word,
    near)
  return nil
end

--- Prints the commands, for `lupine --help`.
function M.help()
  print("Commands (each has --help; a file of that name: ./run):")
  for _, row in ipairs(ROWS) do
    print(("  %-14s %s"):format(row[1], row[3]))
  end
end

return M
