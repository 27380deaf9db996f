--- Names of the attributes of nodes that are PopART's: its sessions read them
--- (lua/popart/annotations.lua, lua/popart/placement.lua), a Builder and exports write them.
---
--- Source: PopART, names.hpp.
return {
  virtualGraph = "__ipu_number", pipelineStage = "__pipeline_stage",
  executionPhase = "__execution_phase", recomputeOutput = "__recompute_output",
  schedulePriority = "__schedule_priority",
  partialsType = "__partials_type", availableMemory = "__available_memory",
  dithering = "__enable_conv_dithering", excludePatterns = "__exclude_patterns",
  inplaceNames = "__inplace_op_names", inplacePriorities = "__inplace_op_priorities",
  serializeMode = "__serialize_matmul_mode", serializeFactor = "__serialize_matmul_factor",
  keepPrecision = "__serialize_matmul_precision", outline = "__outline",
  commGroup = "__collectiveCommGroup",
  outputLocation = "__output_tensor_location",
}
