--- torchvision.datasets: those of lupine.
return require("lupine.datasets")
