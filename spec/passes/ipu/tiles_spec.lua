-- Classes of tiles over steps have what a count tile by tile has.
local program = require("spec.support.program")

describe("bytes of tiles", function()
  for _, tiles in ipairs({ 64, 100, 1216, 1472 }) do
    it(("of %d are those of the fullest tile of each class"):format(tiles), function()
      for seed = 1, 8 do
        assert.equal("right\n", program.shell(("%s/tools/tiles_probe %d %d"):format(program.build,
          tiles, seed)))
      end
    end)
  end
end)
