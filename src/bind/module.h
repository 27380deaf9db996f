/* What every binding file offers: a function that adds its entries to the
 * core table on top of the stack and leaves the stack as it was. A new file
 * adds its prototype here and its line in module.c. */
#ifndef LP_BIND_MODULE_H
#define LP_BIND_MODULE_H

#include <lua.h>

void lp_bind_host(lua_State *L);      /* cpu, log, columns: host.c */
void lp_bind_error(lua_State *L);     /* nearest names: error.c */
void lp_bind_value(lua_State *L);     /* dtypes, Size, slice, none: value.c */
void lp_bind_list(lua_State *L);      /* lists that scripts get: list.c */
void lp_bind_forms(lua_State *L);     /* all operators: forms.c */
void lp_bind_form_list(lua_State *L); /* forms as tables: form_list.c */
void lp_bind_tensor(lua_State *L);    /* Tensor: after forms, keep; tensor.c */
void lp_bind_create(lua_State *L);    /* tensor(), frombuffer(): create.c */
void lp_bind_convert(lua_State *L);   /* item, tolist: convert.c */
void lp_bind_state(lua_State *L);     /* autograd, random, settings: state.c */
void lp_bind_generator(lua_State *L); /* torch.Generator: generator.c */
void lp_bind_hook(lua_State *L);      /* gradient hooks: hook.c */
void lp_bind_keep(lua_State *L);      /* functions the core calls: keep.c */
void lp_bind_function(lua_State *L);  /* autograd.Function: function.c */
void lp_bind_trace(lua_State *L);     /* traces: trace.c */
void lp_bind_body(lua_State *L);      /* loops and branches: body.c */
void lp_bind_host_call(lua_State *L); /* untraced: host_call.c */
void lp_bind_step(lua_State *L);      /* steps: step.c */
void lp_bind_compile(lua_State *L);   /* compiling, programs: compile.c */
void lp_bind_exec(lua_State *L);      /* executors: exec.c */
void lp_bind_graph(lua_State *L);     /* graphs as text, passes: graph.c */
void lp_bind_files(lua_State *L);     /* files of tensors: files.c */
void lp_bind_cache(lua_State *L);     /* executable files, locks: cache.c */
void lp_bind_profile(lua_State *L);   /* executors' times; profile.c */
void lp_bind_json(lua_State *L);      /* JSON: after value; json.c */
void lp_bind_text(lua_State *L);      /* Unicode, patterns: text.c */
void lp_bind_onnx(lua_State *L);      /* messages of ONNX: onnx.c */
void lp_bind_library(lua_State *L);   /* custom operators: library.c */
void lp_bind_step_io(lua_State *L);   /* popart.StepIO's: step_io.c */
void lp_bind_signals(lua_State *L);   /* put off: after host; signals.c */
void lp_bind_children(lua_State *L);  /* programs: children.c */
void lp_bind_worker(lua_State *L);    /* worker processes: worker.c */
void lp_bind_devices(lua_State *L);   /* IPUs of the machine: devices.c */
void lp_bind_ops(lua_State *L);       /* records of operators: ops.c */

void lp_bind_simulation(lua_State *L); /* reports: simulation.c */
void lp_bind_strategy(lua_State *L);   /* rules of placement: strategy.c */
void lp_bind_folders(lua_State *L);    /* folders, checksums: folders.c */
void lp_bind_lua_random(lua_State *L); /* math.random's: lua_random.c */

int luaopen_lupine_core(lua_State *L);

#endif
