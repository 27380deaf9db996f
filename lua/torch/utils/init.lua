--- torch.utils: torch.utils.data.
return { data = require("torch.utils.data") }
