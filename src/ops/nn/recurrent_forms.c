/* What the layers of torch.nn call: a direction of a layer whose weights and
 * states follow the input's type, without the results that only the gradient
 * reads. */
#include <string.h>

#include "src/ops/nn/nnop.h"
#include "src/ops/nn/recurrent.h"

static const char *const plain[] = {"input",     "h_0",     "weight_ih",
                                    "weight_hh", "bias_ih", "bias_hh"};
static const char *const lstm[] = {"input",     "h_0",       "c_0",
                                   "weight_ih", "weight_hh", "bias_ih",
                                   "bias_hh",   "weight_hr"};

static void layer(LpBuilder *b, int op, const char *const *name, int n_in,
                  const LpAttr *attr, const LpVal *in, LpVal *out, int n_out)
{
    LpVal got[LP_MAX_OUT] = {0};
    const char *what = lp_ops[op]->name;
    for (int i = 0; i < n_in; i++)
        lp_alike(b, in[i], in[0], what, name[i]);
    if (!lp_failed(b) && lp_emit_n(b, op, in, n_in, attr, got) > 0)
        memcpy(out, got, (size_t)n_out * sizeof *out);
}

#define WEIGHTS                                                                \
    "Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh"
/* One form of the package, one of torch.nn.functional. */
#define BOTH(form) form " @p\n_" form " @n"

LP_COMPOSITE(lstm_layer,
             BOTH("lstm_layer(Tensor input, Tensor? h_0, Tensor? c_0, " WEIGHTS
                  ", Tensor? weight_hr, bool reverse) -> (Tensor output, "
                  "Tensor h_n, Tensor c_n)"),
             .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    layer(b, LP_OP_lstm, lstm, n_in, attr, in, out, n_out);
}

LP_COMPOSITE(gru_layer,
             BOTH("gru_layer(Tensor input, Tensor? h_0, " WEIGHTS
                  ", bool reverse) -> (Tensor output, Tensor h_n)"),
             .mix = LP_MIX_FOLLOW)
{
    layer(b, LP_OP_gru, plain, n_in, attr, in, out, n_out);
}

LP_COMPOSITE(rnn_layer,
             BOTH("rnn_layer(Tensor input, Tensor? h_0, " WEIGHTS
                  ", bool reverse, bool relu) -> (Tensor output, Tensor h_n)"),
             .mix = LP_MIX_FOLLOW, .cast = LP_CAST_NARROW)
{
    layer(b, LP_OP_rnn, plain, n_in, attr, in, out, n_out);
}
