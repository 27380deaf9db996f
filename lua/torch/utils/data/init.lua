--- torch.utils.data: datasets, samplers, the loader. Element indices count
--- from 0. A sample of several values (or a list) is a tuple: in a loop each
--- of its parts is a loop variable.
--- Source: PyTorch 2.0 documentation, torch.utils.data.
local collate = require("torch.utils.data.collate")
local dataset = require("torch.utils.data.dataset")
local sampler = require("torch.utils.data.sampler")

return require("lupine.base.namespace").close({
  Dataset = dataset.Dataset,
  IterableDataset = dataset.IterableDataset,
  TensorDataset = dataset.TensorDataset,
  Subset = dataset.Subset,
  ConcatDataset = dataset.ConcatDataset,
  StackDataset = dataset.StackDataset,
  ChainDataset = dataset.ChainDataset,
  random_split = dataset.random_split,

  Sampler = sampler.Sampler,
  SequentialSampler = sampler.SequentialSampler,
  RandomSampler = sampler.RandomSampler,
  SubsetRandomSampler = sampler.SubsetRandomSampler,
  WeightedRandomSampler = sampler.WeightedRandomSampler,
  DistributedSampler = sampler.DistributedSampler,
  BatchSampler = sampler.BatchSampler,

  default_collate = collate.default_collate,
  default_convert = collate.default_convert,
  DataLoader = require("torch.utils.data.loader"),
  get_worker_info = require("torch.utils.data.workers").get_worker_info,
}, "torch.utils.data")
