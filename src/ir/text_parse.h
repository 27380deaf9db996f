/* What the parts of the parser of the text form share: text_call.c reads parts
 * and calls, text_parse.c the lines of a graph, step_text.c those of a step. */
#ifndef LP_IR_TEXT_PARSE_H
#define LP_IR_TEXT_PARSE_H

#include "src/base/map.h"
#include "src/ir/text.h"
#include "src/ir/text_lex.h"

#define LP_MAX_INTS 4096 /* elements of an attribute */

typedef struct LpLabel {
    const char *name;
    LpVal value;
} LpLabel;

/* Those of one graph. */
typedef struct LpLabels {
    LpLabel *label;
    size_t n, cap;
    LpMap at; /* by hash of the name */
} LpLabels;

typedef struct LpParser {
    LpLexer x;
    LpGraph *g;
    LpErr *err;
    LpArena keep;               /* labels and words, while parsing */
    LpArena scratch;            /* attributes of one line */
    LpGraph *body[LP_MAX_ATTR]; /* likewise */
    int n_body;
    int depth; /* bodies that this graph is in */
    LpLabels labels;
    LpOriginId origin;
    uint32_t max_region; /* greatest that a node names */
    LpToken region_at;
    /* of the line being read */
    LpVal in[LP_MAX_LIST];
    LpVal region_out[LP_MAX_LIST];
    LpType out[LP_MAX_LIST];
    int64_t ints[LP_MAX_INTS];
    LpToken result[LP_MAX_LIST];
    const char *name[LP_MAX_LIST]; /* all names of the results, in order */
    int name_of[LP_MAX_LIST];      /* which result each belongs to */
    int n_result, n_name;
} LpParser;

/* Bodies in bodies: as many as the parser's recursion shall bear. */
#define LP_MAX_DEPTH 16

/* A call; operands in p->in. */
typedef struct LpParsedCall {
    const LpOp *op;
    LpToken at;
    int n_in;
    bool list;
    LpAttr attr[LP_MAX_ATTR];
    bool given[LP_MAX_ATTR];
} LpParsedCall;

/* A parser at the first word of the text; owned. */
LpStatus lp_parser_new(const char *text, LpParser **out, LpErr *e);
void lp_parser_free(LpParser *p); /* NULL is fine */
/* A graph, from its head on, up to the end of the text or a line that begins
 * with one of `stop` (NULL at the end). Its labels stay in p->labels. Owned. */
LpStatus lp_parse_graph(LpParser *p, const char *const *stop, LpGraph **out);
void lp_labels_fini(LpLabels *l);

/* A failure of a rule becomes one of the text at `at`. */
LpStatus lp_parse_located(LpParser *p, const LpToken *at, const LpErr *rule);
LpStatus lp_parse_define(LpParser *p, const LpToken *label, LpVal v);

/* Each reads one thing and goes past it. */
LpStatus lp_parse_sign(LpParser *p, char c);
LpStatus lp_parse_int(LpParser *p, int64_t min, int64_t max, int64_t *out);
LpStatus lp_parse_string(LpParser *p, const char **out);
LpStatus lp_parse_type(LpParser *p, LpType *t);
LpStatus lp_parse_operand(LpParser *p, LpVal *v);
LpStatus lp_parse_label(LpParser *p, const LpLabels *l, LpVal *v);
LpStatus lp_parse_call(LpParser *p, LpParsedCall *c);

bool lp_parse_at_word(const LpParser *p, const char *w);
bool lp_parse_at_line_end(const LpParser *p);
/* At the end of a line or the text; goes past the line's end. */
LpStatus lp_parse_line_end(LpParser *p);

#endif
