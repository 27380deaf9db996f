--- The classifier of the tutorials' walkthroughs; `features` are what conv2 leaves of a
--- picture, softmax_dim is as the original has it.
local torch = require("torch")
local nn = torch.nn

local ClassificationModel = nn.Module:extend("ClassificationModel")

function ClassificationModel:init(features, softmax_dim)
  self.conv1 = nn.Conv2d(1, 5, 3)
  self.pool = nn.MaxPool2d(2, 2)
  self.conv2 = nn.Conv2d(5, 12, 5)
  self.norm = nn.GroupNorm(3, 12)
  self.fc1 = nn.Linear(features, 100)
  self.relu = nn.ReLU()
  self.fc2 = nn.Linear(100, 10)
  self.log_softmax = nn.LogSoftmax({ dim = softmax_dim })
  self.loss = nn.NLLLoss()
end

function ClassificationModel:forward(x, labels)
  x = self.pool(self.relu(self.conv1(x)))
  x = self.norm(self.relu(self.conv2(x)))
  x = torch.flatten(x, { start_dim = 1 })
  x = self.relu(self.fc1(x))
  x = self.log_softmax(self.fc2(x))
  if self.training then
    return x, self.loss(x, labels)
  end
  return x
end

return ClassificationModel
