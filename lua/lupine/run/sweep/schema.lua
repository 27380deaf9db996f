--- Every key of a sweep's file, once; rows are those of lua/lupine/run/schema.lua, with
--- two types of their own: "parameters" and "fixed" have keys of the run file below them.
return {
  { name = "run", type = "string", required = true, what = "a run file's name",
    doc = "The run file that every job trains, with other values of some keys." },
  { name = "name", type = "string", match = "^[^/%z]+$", what = "a name without '/'",
    doc = "The sweep's name; absent: the file's. Its folder is FOLDER/NAME-001, and so on." },
  { name = "folder", type = "string", default = "runs", doc = "Where the sweep's folder is made." },
  { name = "method", type = "enum", values = { "grid", "random", "halving" }, default = "grid",
    doc = "grid: every combination; random: `count` draws; halving: all train a little, the "
      .. "best go on." },
  { name = "parameters", type = "parameters", required = true,
    doc = "Keys of the run file, each with a list of values or a range {min, max, log, points}: "
      .. "log draws its logarithm evenly, a grid takes `points` of it." },
  { name = "set", type = "fixed", doc = "Keys of the run file with the value that all jobs have." },
  { name = "count", type = "int", min = 1, max = 100000,
    doc = "Jobs that are drawn (random; halving, which takes the grid without it)." },
  { name = "seed", type = "int", min = 0, max = (1 << 53) - 1,
    doc = "Of what is drawn, not of the runs; absent: drawn, and recorded." },
  { name = "metric", type = "string", default = "validation.loss",
    doc = "What the jobs are compared by: the best that each has come to." },
  { name = "mode", type = "enum", values = { "min", "max" }, default = "min",
    doc = "Whether less or more is better." },
  { name = "jobs", type = "int", min = 1, max = 1024, default = 1,
    doc = "Jobs at a time; they share the processor's cores." },
  { name = "halving", type = "group", doc = "How method halving goes about it." },
  { name = "halving.min", type = "every", default = { count = 1, unit = "epoch" },
    doc = "How long all jobs train." },
  { name = "halving.max", type = "every", doc = "How long the last ones train, in all." },
  { name = "halving.factor", type = "int", min = 2, default = 3,
    doc = "How many times longer the next round is, and that one job in so many takes part." },
}
