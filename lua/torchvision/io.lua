--- torchvision.io: the readers and writers of images that lupine has.
return require("lupine.images")
