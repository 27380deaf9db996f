--- torch.utils: torch.utils.data.
return require("lupine.namespace").close({ data = require("torch.utils.data") }, "torch.utils")
