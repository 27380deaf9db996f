--- poptorch.profiling: Channel, whose tracepoints time what runs on the host
--- (lua/lupine/tracepoints.lua).
---
--- Source: PopTorch API reference, poptorch.profiling.
return { Channel = require("lupine.tracepoints").Channel }
