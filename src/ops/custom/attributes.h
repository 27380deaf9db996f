/* Attributes of custom operators as text, `alpha=0.02, sizes=[1, 2]`: how they
 * stand in a graph. Numbers and strings are written as in the text form of
 * graphs (src/ir/text.c); a float has a point or an exponent. */
#ifndef LP_OPS_CUSTOM_ATTRIBUTES_H
#define LP_OPS_CUSTOM_ATTRIBUTES_H

#include "include/lupine/custom_op.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* Elements of a list, bytes of a text. */
#define LP_CUSTOM_MAX_LIST 65536
#define LP_CUSTOM_MAX_TEXT ((size_t)1 << 22)

/* What an operator takes: specs that have been checked. */
typedef struct LpCustomSpecs {
    const char *label; /* of the operator, for messages */
    const lupine_attr_spec *spec;
    int n;
} LpCustomSpecs;

/* attr[0..n-1] in the order of the specs; what the text leaves out has its
 * fallback. All memory is `mem`'s. An error names the attribute. */
LpStatus lp_custom_attrs_read(const LpCustomSpecs *s, const char *text,
                              LpArena *mem, lupine_attr *attr, LpErr *e);

/* The one value that is the whole text, of the kind. */
LpStatus lp_custom_value_read(const char *text, int32_t kind, LpArena *mem,
                              lupine_attr *out, LpErr *e);

/* The text that gives these attributes again: one for equal ones. NULL when
 * memory is short. */
char *lp_custom_attrs_text(const LpCustomSpecs *s, const lupine_attr *attr,
                           LpArena *mem);

#endif
