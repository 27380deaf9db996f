--- PopART's own interface is not part of lupine; requiring it says so.
require("lupine.base.errors").raise("ImportError",
  "the module 'popart' is not part of lupine: models are built with torch and run with poptorch")
