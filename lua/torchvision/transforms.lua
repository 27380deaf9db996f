--- torchvision.transforms: those of lupine.
return require("lupine.transforms")
