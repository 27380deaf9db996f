--- What users expect, by number, each with what proves it: spec files and names of their
--- `it` (or of a part of a name that is put together), and targets of make that sweep
--- more than the suite has time for. spec/expectations/list_spec.lua looks each up.
return {
  -- the prompt
  { 1, "an unfinished entry is continued, a pasted block runs once",
    ["spec/lupine/repl_spec.lua"] = {
      "goes on with an unfinished chunk, a statement or an expression",
      "runs a pasted block once, as one chunk, without completing tabs" },
    ["spec/lupine/repl/terminal_spec.lua"] = { "runs a pasted block of 50 lines once",
      "runs it once where the terminal does not mark pastes" } },
  { 2, "history is a private text file of all sessions; where it cannot be, a warning",
    ["spec/lupine/repl_spec.lua"] = { "keeps a private history that later sessions offer",
      "only warns when the history cannot be written" },
    ["spec/lupine/repl/terminal_spec.lua"] = {
      "offers an entry of several lines as one", "only warns where there is no home",
      "shares the history of sessions, also of killed ones" } },
  { 3, "Tab knows globals, fields, methods, modules, option keys, files; it runs nothing",
    ["spec/lupine/complete_spec.lua"] = { "completes globals, keywords and fields",
      "offers methods through metatables without running code",
      "completes module names and files inside strings",
      "completes keywords of functions and classes",
      "never calls a function __index of globals",
      "calls no function of a metatable of the user" },
    ["spec/lupine/repl/terminal_spec.lua"] = {
      "completes methods, options, keywords, modules and files",
      "runs no code of the user for completion" } },
  { 4, "UTF-8 and new sizes of the window; a plain prompt without a terminal",
    ["spec/lupine/repl_spec.lua"] = { "edits lines with characters beyond ASCII",
      "uses a plain prompt on a dumb terminal" },
    ["spec/lupine/repl/terminal_spec.lua"] = { "edits wide characters",
      "goes on after a change of the window's size" } },
  { 5, "expressions print; tensors aligned and cut, tables in order with their cycles",
    ["spec/lupine/repl_spec.lua"] = { "prints expressions and keeps the last value in _",
      "prints tensors with their type and shape" },
    ["spec/lupine/show_spec.lua"] = { "marks cycles but not what is merely shared",
      "lists elements, then fields in order" },
    ["spec/torch/tensor_print_spec.lua"] = { "prints whole floats with a point and aligns columns",
      "summarises more than 1,000 elements", "says what is unusual: dtype, size, gradient",
      "follows set_printoptions" } },
  { 6, "?NAME shows signature, text, defaults and source, from the tree alone",
    ["spec/lupine/describe_spec.lua"] = { "shows the forms of operators",
      "shows what Lua defines with its description",
      "shows a function of a script with its comment and place" },
    ["spec/lupine/repl/examples_spec.lua"] = { " gives what it says" },
    ["spec/lupine/repl_spec.lua"] = { "describes a function from its source" } },
  { 7, "Ctrl-C ends what runs at once, and the session goes on",
    ["spec/lupine/repl_spec.lua"] = { "stops a running chunk at Ctrl-C and goes on" },
    ["spec/lupine/repl/interrupt_spec.lua"] = { "Ctrl-C at the prompt stops",
      "a product of 8192 x 8192", "a loader's wait" },
    ["spec/ops/interrupt_spec.lua"] = { "ends ", "ends a compiled program within an operator" } },
  { 8, "tracebacks have the user's frames, lupine's on request",
    ["spec/main_spec.lua"] = { "leaves lupine's own frames out of tracebacks unless asked" },
    ["spec/lupine/repl/commands_spec.lua"] = { "show lupine's own frames of the last error" } },
  { 9, "torch.memory() and :time tell what they should",
    ["spec/torch/memory_spec.lua"] = { "reports live, peak and cached bytes" },
    ["spec/lupine/repl_spec.lua"] = { "times an expression and knows its commands" },
    ["spec/lupine/repl/commands_spec.lua"] = {
      "time an expression by its mean and a statement once",
      "list the largest tensors by the names that lead to them" } },

  -- scripts
  { 10, "dropped tensors do not pile up, in either mode of the collector",
    ["spec/torch/memory_spec.lua"] = {
      "of 1 MiB, 10,000 of them, raise the resident memory by less than 80 MiB",
      "of steps that hold a hundred peak below 250 MiB" } },
  { 11, "an error of shapes names operator, argument, shapes, module and line",
    ["spec/expectations/errors_spec.lua"] = {
      "of %s names it, the argument, both shapes and the line",
      "in a module has its path, in eager and compiled code" } },
  { 12, "a point for a colon is told; indices count from 0, and errors say so",
    ["spec/torch/nn/module_spec.lua"] = { "says so when forward is called with a point",
      "that is called with a point is an error that says so" },
    ["spec/expectations/errors_spec.lua"] = { "says that indices count from 0" } },
  { 13, "a label out of range is named with classes and sample",
    ["spec/expectations/errors_spec.lua"] = {
      "is named with the number of classes and the sample",
      "has the sample of many elements, and is named by compiled steps too" } },
  { 14, "a trace tells all unsupported operators at once; item() has a way out",
    ["spec/poptorch/refused_spec.lua"] = {
      "are all told at once, each with its place in the script" },
    ["spec/expectations/errors_spec.lua"] = { "says what to do instead, and that works" } },
  { 15, "each compilation logs why, each look into a cache hit or miss and the reason",
    ["spec/lupine/training_step_calls_spec.lua"] = { "say in the log why they were compiled" },
    ["spec/poptorch/logging_spec.lua"] = {
      "tells options, cycles and why a model is compiled again" },
    ["spec/lupine/session_cache_spec.lua"] = {
      "has an entry of what was compiled, which serves other weights",
      "says what is of another version",
      "ignores damaged and foreign files, and writes them anew" } },
  { 16, "no argument of a public function ends the process", sweep = { "fuzz-api", "fuzz" },
    ["spec/fuzz/api_spec.lua"] = { "random calls end in results or in errors" },
    ["spec/torch/metamethods_spec.lua"] = { "survives any self" },
    ["spec/torch/wrong_calls_spec.lua"] = { "is an error of a class, of names that scripts know" },
    ["spec/hostile/hostile_spec.lua"] = {
      " answers hostile inputs with errors, in little time and memory" } },
  { 17, "load_state_dict tells what did not fit; optimizers match by name",
    ["spec/expectations/errors_spec.lua"] = {
      "returns missing, unexpected and, if they may be, mismatched keys",
      "lists all three in its error otherwise",
      "warns where strict = false loads nothing, and then alone" },
    ["spec/lupine/checkpoint/checkpoint_spec.lua"] = {
      "match an optimizer's parameters by name, not by their order" } },
  { 18, "reading files and building reports draws no random numbers",
    ["spec/expectations/random_spec.lua"] = { "the random numbers are left where they were by" },
    ["spec/lupine/checkpoint/checkpoint_spec.lua"] = {
      "leaves the random numbers alone, and so does loading" } },

  -- runs
  { 19, "command line over file over default, and each value's origin is printed",
    ["spec/lupine/run/config_spec.lua"] = { "yields to the command line",
      "has its own values, those of what it includes, and the defaults",
      "prints itself in a form that says the same" },
    ["spec/lupine/commands/run_spec.lua"] = { "prints the configuration and makes nothing" } },
  { 20, "an unknown key or a wrong type: file, line, nearest names, range",
    ["spec/lupine/run/config_spec.lua"] = {
      "is refused with file, line, the nearest name and what is allowed" },
    ["spec/lupine/commands/run_spec.lua"] = {
      "refuses what is wrong in a line, with file and line" } },
  { 21, "the schema gives types, not the look of a text",
    ["spec/lupine/run/config_spec.lua"] = {
      "types values by the schema, and free arguments by YAML 1.2" } },
  { 22, "relative paths begin where the command is typed",
    ["spec/lupine/commands/stopped_spec.lua"] = {
      "looks for files where the command is typed, and says so" } },
  { 23, "a run has a folder of its own, with all that it takes to repeat it",
    ["spec/lupine/run/folder_spec.lua"] = { "has the configuration and where the run comes from",
      "is a new one each time, whatever is there",
      "knows git's commit and what the tree has beside it" },
    ["spec/lupine/commands/run_spec.lua"] = { "repeats a run from its configuration and seed" } },
  { 24, "--dry-run trains, validates, writes and rereads a checkpoint, tells memory",
    ["spec/lupine/commands/dry_run_spec.lua"] = {
      "trains two steps, validates a batch, and leaves nothing",
      "tells what the simulated system needs" } },
  { 25, "a checkpoint survives kill -9; a write that fails is an error", sweep = { "check-full" },
    ["spec/lupine/checkpoint/crash_spec.lua"] = {
      "that is killed at a system call leaves a whole checkpoint",
      "one of whose system calls fails leaves a whole checkpoint",
      "that cannot write or rename says so", "is full" } },
  { 26, "going on has the bits of a run without a break, logs are appended to",
    ["spec/lupine/commands/resume_spec.lua"] = {
      "by SIGTERM in an epoch goes on with the same bits",
      "by kill -9, from the checkpoint before it" },
    ["spec/lupine/trainer/resume_spec.lua"] = {
      "has the same bits with any number of workers: " },
    ["spec/lupine/run/records_spec.lua"] = { "go on behind the rows that a checkpoint has seen" } },
  { 27, "SIGTERM and Ctrl-C: save, tell how it goes on, fail",
    ["spec/lupine/commands/stopped_spec.lua"] = { "says how it goes on and that it was stopped" },
    ["spec/lupine/commands/resume_spec.lua"] = {
      "by Ctrl-C, with workers and operator by operator" } },
  { 28, "a sweep tells failed jobs at once, goes on, and resumes under the same numbers",
    ["spec/lupine/commands/sweep_spec.lua"] = { "tells a job that fails at once and goes on",
      "stops the others with --fail-fast",
      "goes on where it was stopped, under the same numbers, with the same bits" } },
  { 29, "a bar on a terminal alone, else a line now and then",
    ["spec/lupine/progress_spec.lua"] = { "is a line every interval, and one at the end",
      "is one line drawn again, never wider than the terminal" },
    ["spec/lupine/commands/run_spec.lua"] = {
      "writes no bar where there is no terminal, and nothing of it to standard output" } },
  { 30, "a row of metrics costs the same always, and may have new columns; event files",
    ["spec/lupine/run/records_spec.lua"] = {
      "accept new columns, each row with as many fields as the head",
      "cost the same after ten thousand others" },
    ["spec/lupine/commands/run_spec.lua"] = { "writes event files on demand" } },
  { 31, "NaN stops the run, names the module, keeps the last good checkpoint",
    ["spec/lupine/trainer/nan_spec.lua"] = { "stops and names module and step: ",
      "stops a device, and names the module", "keeps the last good checkpoint" } },
  { 32, "a worker's own error is shown; nothing is left of it; waiting ends",
    ["spec/torch/utils/workers_spec.lua"] = {
      "raises the worker's own error, with its class, message and place",
      "tells how a worker was killed, or ended by itself", "stops waiting after its timeout",
      "leaves no process when a loop is left early", "workers die with their parent" } },
  { 33, "augmentation differs between workers and is the same for any number of them",
    ["spec/torch/utils/workers_spec.lua"] = {
      "the same shuffling and the same augmentation for any number of them",
      "has a seed of its own" } },

  -- reports
  { 34, "out of memory: stage, fullest tiles, biggest tensors, and the option that helps",
    ["spec/expectations/memory_spec.lua"] = {
      "is an error with stage, fullest tiles, and the biggest tensors of which layer",
      "names each option that helps, what it saves, and fits with it",
      "names several options where one is not enough, and no more than it takes" } },
  { 35, "a placement that cannot run is refused; what stages wait for is reported",
    ["spec/poptorch/executor_placement_spec.lua"] = {
      "is refused with the operator, its line and its block" },
    ["spec/expectations/pipelines_spec.lua"] = {
      "that would wait for ever is refused with the numbers that it needs",
      "has every stage wait for the others' fill and flush, as the report says",
      "names the stage that the others wait for" } },
  { 36, "the report is one page that opens without a network, below 5 MB",
    ["spec/lupine/report/page_spec.lua"] = {
      "of BERT-Large on eight IPUs is below 5 MB",
      "of any number of operators and rows is below 5 MB, and has the longest" } },
  { 37, "curves without TensorBoard; a summary's totals are the counted parameters",
    ["spec/lupine/plot/plot_spec.lua"] = { "draws a line from corner to corner",
      "has the points in their places, and a new line behind a gap" },
    ["spec/lupine/summary_spec.lua"] = {
      "a summary's totals are the counted parameters of" } },

  -- installing, documents, porting
  { 38, "no network, and a stock lua5.4 can require it",
    ["spec/expectations/network_spec.lua"] = { "a training with workers, and its report",
      "any module that is required, by the program and by a stock lua5.4",
      "make, once the packages are there: no recipe or source fetches anything",
      "what the texts tell to set is LUA_PATH_5_4 and LUA_CPATH_5_4" },
    ["spec/install_spec.lua"] = { "train with a stock interpreter that searches the prefix" } },
  { 39, "every example runs; every option has its default, range and effect",
    ["spec/docs_spec.lua"] = { "has Lua that runs at line %d",
      "has commands that work at line %d", "end as the README says: %s" },
    ["spec/expectations/pages_spec.lua"] = { "every page with Lua is run by spec/docs_spec.lua" },
    ["spec/poptorch/option_documents_spec.lua"] = {
      "help has of every setter what it allows, its default, and its effect",
      "every option says what it is and does" } },
  { 40, "Python and Lua side by side; files of Python and of every version load",
    ["spec/expectations/releases_spec.lua"] = {
      "has weights that load, as safetensors, by torch.load and as arrays",
      "has an optimizer's state that loads", "has a checkpoint that is restored",
      "has an executable that runs, or says which version it is of, with its weights",
      "this version has recorded its files", "with numpy is read: columns first, archives",
      "with safetensors is read, in every bit", "with onnx is read and computes" },
    ["spec/poptorch/options_file_spec.lua"] = { "applies the sample of the user guide" },
    ["spec/lupine/onnx/testdata_spec.lua"] = {
      "pass in eager calls, but for types that are not there" },
    ["spec/docs_spec.lua"] = { "docs/porting.md" } },
  { 41, "numbers on either side; names and positions agree",
    ["spec/expectations/numbers_spec.lua"] = { "a number stands on either side of",
      "all of them, with gradients", "positions and names give the same result of" },
    ["spec/bind/call/forms_spec.lua"] = {
      "go by position, by name in a last table, or both" } },
}
