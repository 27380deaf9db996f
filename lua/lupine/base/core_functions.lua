--- Functions of the core that are lupine's own: what they take and give, as text
--- for lupine.base.signatures (the others are PyTorch's). Any stands for tables
--- too; traces, steps, plans and programs are userdata with methods.
return [[
trace() -> Trace
  -- A new trace: trace:declare(role, name, tensor, shape, dtype) makes a stand-in for a
  -- variable, trace:excludes({texts}, library) says whose frames are no places of operators,
  -- trace:run(guarded, f, ...) records what f computes, and trace:step({outputs}) ends it and
  -- gives the step.
compile(Step step, Any spec) -> (Plan plan, Program program)
  -- Completes a step and compiles it. spec: device_iterations=1, gradient_accumulation=1,
  -- replicas=1, mean, running, numerics={…}, loss=value, loss_scale=variable,
  -- gradients={…}, rules={…}, anchors={names}, names=bool, system={…} (as options of
  -- core.plan), host={…}, progress=function (called with each part that is done).
  -- program:executor() runs it, plan:report() tells what it costs.
lower(Step step, Any spec) -> Program
  -- The program of a complete step; of compile's spec it reads host.
plan(Step step, Any options, Any placement=None) -> Plan
  -- What a completed step takes on the simulated system. options: chip=, strategy=, …; a
  -- placement is {nodes = list} or {places = list} of {ipu=, stage=, phase=}. plan:report(),
  -- plan:schedule(), plan:nodes(), plan:liveness(), plan:json(), plan:step(),
  -- plan:replay(inputs, how).
default_device(Any device=None) -> Any
  -- Where tensors are made whose call names no device, before this one is set, if one is
  -- given: torch.set_default_device.
loop(int count, Body body, Tensor[] inputs) -> Tensor[]
  -- A loop of the running trace: the body on the inputs, then on its results. A body is used
  -- once (lupine.control.loop has the checks).
branch(Tensor condition, Body then_body, Tensor[] then_inputs, Body else_body, Tensor[]
    else_inputs) -> Tensor[]
  -- A branch of the running trace (lupine.control.branch has the checks).
call(Body body, Tensor[] inputs) -> Tensor[]
  -- A call of a body in the running trace (lupine.control.call).
body(Function f, Tensor[] inputs) -> Body
  -- Traces f({stand-ins}) -> {results} once, for loop, branch and call; what else it reads is
  -- captured.
grad(Tensor[] outputs, Tensor[] inputs, Tensor?[] grad_outputs=None, bool? retain_graph=None,
    bool create_graph=False, *, bool allow_unused=False) -> Tensor[]
  -- Gradients of the outputs with respect to the inputs, as torch.autograd.grad gives them.
backward(Tensor[] tensors, Tensor?[] grad_tensors=None, bool? retain_graph=None, bool
    create_graph=False, Tensor[]? inputs=None) -> None
  -- Adds the gradients of the tensors to the leaves' grad.
function_record(Function rule, Tensor[] inputs, Tensor[] outputs, Any keep_in, Any keep_out, Any
    dirty, bool materialize) -> None
  -- Outputs made without a history get a node whose gradient rule(grads, inputs, outputs,
  -- needs) gives (torch.autograd.Function).
function_trace(Function rule, Tensor[] inputs, Tensor[] outputs, bool materialize) -> Tensor[]
  -- The same of the running trace.
is_tracing() -> bool
  -- Whether a trace runs.
is_traced(Any obj) -> bool
  -- Whether it is a value of the running trace.
is_parameter(Any obj) -> bool
  -- Whether it is a parameter.
is_closed(Any obj) -> bool
  -- Whether it is a tensor whose memory was given back.
parameter(Tensor data, bool requires_grad=True) -> Tensor
  -- A parameter that shares the elements and is a leaf of its own.
zero_room(Tensor room) -> None
  -- Zeros a tensor that was just made; of large ones a page is had when it is touched.
trace_scales(Tensor tensor) -> None
  -- The running trace may write this parameter (max_norm of embeddings).
set_grad_enabled(bool mode) -> None
  -- Whether gradients are recorded.
set_anomaly_enabled(bool mode) -> None
  -- Whether backward() looks for NaN.
set_task(bool on) -> bool
  -- What a worker could do begins or ends: deterministic algorithms then have a worker's
  -- width. Gives what was set.
list(Any table) -> Any
  -- Marks a table as a list that a script gets: its index 0 is an error.
sample(Tensor self, int edge) -> Any
  -- Nested lists of what printing shows: edge elements at both ends, all if it is negative.
form_list() -> Any
  -- The forms of all operators, as tables.
ops() -> Any
  -- The records of all operators, as tables.
op_cost(str name, Any operands, Any attributes, str chip, int? tiles=None) -> Any
  -- What an operator takes on a chip, or nil where its record has no rule.
passes() -> (Any common, Any host)
  -- The names of the common passes, and of those that rewrite the host's graph.
graph_parse(str text) -> Graph
  -- A graph from its text form.
step_parse(str text) -> Step
  -- A step from its text form; its variables have no data.
chip(str version) -> Any
  -- {tiles, workers, ipus_machine, ipus_rack} of ipu1, ipu2 or ipu21, else nil.
report_fields() -> Any
  -- What the fields of reports mean: {group, name, kind, of, unit, doc} each.
profile_begin() -> None
  -- Starts a session of profiling.
profile_end() -> Any
  -- Ends it; the profiles of the executors that ran.
profile_clock() -> (int now, int in_executors)
  -- Nanoseconds: the clock, and in executors since the session began.
machine_peak(int threads) -> (float flops, float bytes)
  -- What this machine can do in a second.
mem_live() -> int
  -- Blocks of the heap that are in use, for specs.
mem_fail_at(int n, bool lasting=False) -> int
  -- Makes the n-th allocation from now fail, for specs; gives what was left of the number.
mem_most(int n) -> None
  -- Makes each allocation of more bytes fail, for specs; 0: none.
nearest(str word, Any names) -> Any
  -- The name that is nearest to a word, or nil.
terminal_columns() -> Any
  -- The columns of the terminal that stderr is, or nil.
start_child(Any options) -> Child
  -- A program in a process group of its own: {program, arguments (the first is its name),
  -- environment (NAME=value, beside this process's), output (a file that is written at its end)}.
  -- child:pid(), child:ended() (exit code and signal, nil while it runs), child:signal(name),
  -- child:close().
wait_for_children(Child[] children, float seconds) -> None
  -- Waits until one of them ends, a signal comes or the time is over.
start_worker(Function f, bool leader=False) -> Channel
  -- Forks a process that runs f(channel): channel:send(text, tensors), channel:receive(seconds).
json_decode(str text, str what) -> Any
  -- The value of a JSON text; `what` names the text in messages.
json_encode(Any value, int? indent=None) -> str
  -- JSON; names of objects are sorted.
text_map(str text, str form) -> str
  -- A text in a form of Unicode (NFC, NFD, NFKC, NFKD), or in lower case ("lower").
regex(str pattern) -> Any
  -- A pattern of PCRE2: regex:find_all(text) gives places of its matches, regex:pieces(text)
  -- the matches and what lies between them.
onnx_decode(str bytes, str kind, bool lend=False) -> Any
  -- The fields of a message of onnx.proto: a ModelProto, GraphProto or TensorProto.
  -- With lend long raw_data is a tensor of uint8 in place of a string.
onnx_read(str path, str kind, bool lend=False) -> Any
  -- The same of a file.
onnx_values(Tensor raw_data, ScalarType dtype) -> Tensor
  -- What was lent as a tensor of that type, over the same memory.
onnx_encode(Any table, str kind) -> str
  -- The message of such fields; raw_data may be a tensor.
onnx_fits(Any table, str kind) -> bool
  -- Whether that has no more bytes than a message may have.
onnx_write(Any table, str kind, str path) -> None
  -- The same to a file, replaced as a whole or not at all.
untraced(Function f, Any args) -> Any
  -- f(args …) outside the trace that runs.
list_folder(str path) -> (Any folders, Any files)
  -- Names in a folder, without hidden ones, in no order.
read_within(str folder, str path, int offset, int length) -> Tensor
  -- Bytes of a regular file within a folder, by a path that is not to be trusted.
read_csv(str path, str delimiter, bool header) -> (Any names, Any columns)
  -- Columns as tensors, or as lists of strings.
read_idx(str path) -> Tensor
  -- A file of the IDX format.
read_image(str path, str mode) -> Tensor
  -- A PNG or JPEG picture.
read_npy(str path) -> Tensor
  -- A file of NumPy's.
read_npz(str path, bool each=False) -> (Any names, Any tensors, Any texts)
  -- NumPy's archive; with each a bad array is false, and texts say why.
read_safetensors(str path) -> (Any names, Any tensors, Any metadata)
  -- A file of safetensors.
load_library(str path) -> Any
  -- Loads a library of custom operators; what they are is told by custom_ops.
step_io(str path, str argument) -> Any
  -- A library of inputs and anchors, opened with an argument.
custom_ops() -> Any
  -- The custom operators that are loaded, as tables.
hooked(Tensor tensor) -> bool
  -- Whether functions are called with the gradient of a leaf.
regex(str pattern) -> Any
  -- A pattern of PCRE2 in UTF-8: regex:find_all(text) gives the first and last byte of each
  -- match, regex:pieces(text) the matches and what lies between them.
text_map(str text, str form) -> str
  -- UTF-8 in a normal form ('NFC', 'NFD', 'NFKC', 'NFKD') or in lower case ('lower').
xxh3(str bytes) -> str
  -- The 16 hexadecimal digits of their XXH3.
read_executable(str path) -> (Any names, Any tensors, Any texts)
  -- An executable file of this version.
write_executable(str path, Any names, Tensor[] tensors, Any texts) -> None
  -- An executable file, replaced as a whole or not at all.
hash_file(str path) -> (str, int)
  -- The 16 hexadecimal digits of the XXH3 of a file's bytes, and their number.
new_folder(str parent) -> Any
  -- A new folder within one that is there: folder:path(); folder:rename(path, replace) gives it
  -- its place as a whole, unless something is there. It goes when it is closed before that.
remove_folder(str path) -> None
  -- Removes a folder with all that is in it, of which nobody sees a part; links go, not what they
  -- lead to.
lua_random(Tensor? state=None) -> Any
  -- The state of math.random, or nothing after setting it.
is_folder(str path) -> bool
  -- Whether a folder is there.
lock_file(str path) -> Any
  -- A lock that other processes wait for, held until it is closed.
make_folder(str path) -> None
  -- Makes a folder with those around it, if it is not there.
write_parts(str path, Any parts) -> None
  -- A file of strings and of tensors' bytes one after the other, replaced as a whole or not at all.
sync_file(str path) -> None
  -- What was written to a file is on the disk then.
write_text(str path, str text) -> None
  -- A file of that text, replaced as a whole or not at all.
write_npy(str path, Tensor arr) -> None
  -- A file of NumPy's.
write_npz(str path, Any names, Tensor[] tensors, Any reserved, bool compressed=False) -> None
  -- NumPy's archive.
write_png(str path, Tensor image) -> None
  -- A PNG picture.
write_safetensors(str path, Any names, Tensor[] tensors, Any metadata=None) -> None
  -- A file of safetensors.
]]
