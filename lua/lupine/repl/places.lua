--- Where a name is looked for that the script has not, in order.
return { "torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.optim.lr_scheduler",
  "torch.utils.data", "torch.nn.init", "torch.nn.utils", "torch.distributions", "torch.linalg",
  "torch.special", "torch.autograd", "poptorch", "popart", "lupine", "lupine.onnx" }
