/* A small training step, for what specs cannot reach from Lua: steps that are
 * damaged. Spoils it in the way that the argument names ("none": not at all),
 * verifies it, prints "right" or the message.
 *
 * x is an input, b a buffer that the forward half replaces, w a parameter with
 * its accumulator and a state that the update replaces, rate a
 * hyper-parameter. */
#include <stdio.h>
#include <string.h>

#include "src/ir/schema.h"
#include "src/ir/step.h"

static const char micro[] = "graph\n"
                            "input %1: float32[2, 3]\n"
                            "input %2: float32[3]\n"
                            "input %3: float32[3]\n"
                            "input %4: float32[3]\n"
                            "origin\n"
                            "%5 = mul(%1, %2): float32[2, 3]\n"
                            "%6 = neg(%3): float32[3]\n"
                            "%7 = add(%4, %2): float32[3]\n"
                            "output %5\n"
                            "output %6\n"
                            "output %7\n";
static const char update[] = "graph\n"
                             "input %1: float32[3]\n"
                             "input %2: float32[3]\n"
                             "input %3: float32[3]\n"
                             "input %4: float32[]\n"
                             "origin\n"
                             "%5 = add(%2, %3): float32[3]\n"
                             "%6 = mul(%5, %4): float32[3]\n"
                             "%7 = sub(%1, %6): float32[3]\n"
                             "output %7\n"
                             "output %5\n";

enum { X, OUT, B, W, ACCUM, M, RATE, N_VAR };

static const LpVariable table[N_VAR] = {
    [X] = {LP_VAR_STREAM_IN, "x", .micro_in = 1, .param = -1},
    [OUT] = {LP_VAR_STREAM_OUT, "out", .micro_out = 5, .param = -1},
    [B] = {LP_VAR_BUFFER, "b", .micro_in = 3, .micro_out = 6, .param = -1},
    [W] = {LP_VAR_PARAM, "w", .micro_in = 2, .update_in = 1, .update_out = 7,
           .param = -1},
    [ACCUM] = {LP_VAR_ACCUM, "g", .micro_in = 4, .micro_out = 7, .update_in = 2,
               .param = W},
    [M] = {LP_VAR_STATE, "m", .update_in = 3, .update_out = 5, .param = W},
    [RATE] = {LP_VAR_HYPER, "rate", .update_in = 4, .param = -1},
};

static LpStatus make(LpStep *s, LpErr *e)
{
    lp_graph_free(s->micro);
    s->micro = NULL;
    LP_TRY(lp_graph_parse(micro, &s->micro, e));
    LP_TRY(lp_graph_parse(update, &s->update, e));
    s->gradient_accumulation = 2;
    for (int i = 0; i < N_VAR; i++) {
        LpVariable v = table[i];
        bool streams = i == X || i == OUT;
        v.type = (LpType){.dtype = LP_F32, .ndim = i != RATE, .shape = {3}};
        if (streams)
            v.type = *lp_graph_type(s->micro, i == X ? 1 : 5);
        if (!streams && i != ACCUM)
            LP_TRY(lp_tensor_new(&v.type, &v.data, e));
        int at = lp_step_add(s, &v, e);
        lp_tensor_release(v.data);
        if (at < 0)
            return LP_E_MEMORY;
    }
    return LP_OK;
}

/* ---- damage -------------------------------------------------------------- */
static bool damage_value(LpVariable *v, const char *kind)
{
    if (!strcmp(kind, "no such input"))
        v[X].micro_in = 99;
    else if (!strcmp(kind, "number"))
        v[OUT].micro_out = LP_VAL_IMM;
    else if (!strcmp(kind, "not an input"))
        v[B].micro_in = 6;
    else if (!strcmp(kind, "read twice"))
        v[B].micro_in = 2;
    else if (!strcmp(kind, "not read"))
        v[X].micro_in = LP_NOVAL;
    else if (!strcmp(kind, "another output"))
        v[ACCUM].micro_out = 6;
    else if (!strcmp(kind, "not written"))
        v[M].update_out = LP_NOVAL;
    else if (!strcmp(kind, "shape"))
        v[OUT].type.shape[0] = 1;
    else if (!strcmp(kind, "dtype"))
        v[X].type.dtype = LP_F16;
    else
        return false;
    return true;
}

static bool damage_role(LpStep *s, const char *kind)
{
    LpVariable *v = s->var;
    if (!strcmp(kind, "role"))
        v[X].role = LP_N_VAR_ROLES;
    else if (!strcmp(kind, "input is written"))
        v[X].micro_out = 5;
    else if (!strcmp(kind, "buffer is updated"))
        v[B].update_out = 5;
    else if (!strcmp(kind, "output is none"))
        v[OUT].micro_out = LP_NOVAL;
    else if (!strcmp(kind, "data")) {
        v[OUT].data = lp_tensor_retain(v[M].data);
    } else if (!strcmp(kind, "type of data"))
        v[B].data->dtype = LP_I32;
    else if (!strcmp(kind, "link"))
        v[M].param = N_VAR;
    else if (!strcmp(kind, "link to another role"))
        v[M].param = B;
    else if (!strcmp(kind, "type of accumulator"))
        v[W].type.shape[0] = v[W].data->shape[0] = 4;
    else if (!strcmp(kind, "never added to"))
        v[ACCUM].micro_in = LP_NOVAL;
    else if (!strcmp(kind, "no replica"))
        s->replicas = 0;
    else if (!strcmp(kind, "no update")) {
        lp_graph_free(s->update);
        s->update = NULL;
    } else
        return strcmp(kind, "none") == 0;
    return true;
}

int main(int argc, char **argv)
{
    LpErr e = {0};
    LpStep *s = lp_step_new();
    lp_schema_init(&e);
    if (argc != 2 || !s || e.code != LP_OK || make(s, &e) != LP_OK ||
        !(damage_value(s->var, argv[1]) || damage_role(s, argv[1]))) {
        fprintf(stderr, "step_probe: %s\n", e.code ? e.msg : "no such damage");
        lp_step_release(s);
        return 2;
    }
    LpStatus st = lp_step_verify(s, &e);
    puts(st == LP_OK           ? "right"
         : st == LP_E_INTERNAL ? e.msg
                               : lp_status_class(st));
    lp_step_release(s);
    return 0;
}
