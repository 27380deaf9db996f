--- torch.utils: torch.utils.data, torch.utils.checkpoint.
return require("lupine.base.namespace").close({ data = require("torch.utils.data"),
  checkpoint = require("torch.utils.checkpoint") }, "torch.utils")
