/* The record of a pointwise operator that the driver of
 * src/kernel/loops/pointwise.h runs: what the rows of unary.def and binary.def
 * become. `more`: LP_ALSO(…) with further fields of LpPointwise; the rest sets
 * further fields of LpOp, above all the gradient's. */
#ifndef LP_OPS_POINTWISE_POINTWISE_RECORD_H
#define LP_OPS_POINTWISE_POINTWISE_RECORD_H

#define LP_ALSO(...) __VA_ARGS__
#define LP_POINTWISE(name, forms_, policy_, cost_, where_, more, ...)          \
    static const LpPointwise data_##name = {.loop = LP_LOOP_##name,            \
                                            .policy = LP_PW_##policy_,         \
                                            .cost = LP_EW_##cost_,             \
                                            .domain = where_,                  \
                                            more};                             \
    LP_PRIMITIVE(name, forms_, lp_infer_pointwise, lp_pointwise_prepare,       \
                 lp_rule_pointwise, .data = &data_##name, __VA_ARGS__)

/* The heads of what a row's .select and .rule name. */
#define LP_PW_SELECT(name)                                                     \
    static int name(const LpKernelReq *r LP_UNUSED, LpDtype type LP_UNUSED,    \
                    LpPwNode *n LP_UNUSED)
#define LP_PW_RULE(name)                                                       \
    static LpStatus name(const LpInfer *x LP_UNUSED, LpDtype *t LP_UNUSED)

/* Of gelu and its gradient. */
LP_PW_RULE(rule_gelu)
{
    return lp_infer_mode(x, LP_GELU_APPROXIMATE, "approximate", "none", "tanh");
}
static inline bool lp_by_tanh(const LpAttr *attr)
{
    return attr[LP_GELU_APPROXIMATE].str[0] == 't';
}

#define LP_BOOLEAN_GRAD "a boolean result has no gradient"

#endif
