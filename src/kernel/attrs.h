/* Positions of attributes: what records, kernels, cost rules and passes index
 * lists of LpAttr with. Over each enum stand the operators whose signatures
 * have these arguments in this order, all or the first of them; a member ends
 * with the argument's name (spec/ops/attrs_spec.lua compares). Operators that
 * only the file with their signature reads need none; lint refuses a number
 * elsewhere. */
#ifndef LP_KERNEL_ATTRS_H
#define LP_KERNEL_ATTRS_H

/* ---- pointwise ---------------------------------------------------------- */
/* add, sub */
enum { LP_ADD_ALPHA };
/* div */
enum { LP_DIV_ROUNDING_MODE };
/* cast */
enum { LP_CAST_DTYPE };
/* gelu, gelu_backward */
enum { LP_GELU_APPROXIMATE };
/* elu_backward */
enum { LP_ELU_BACK_SLOPE, LP_ELU_BACK_INSIDE, LP_ELU_BACK_ABOVE };
/* celu */
enum { LP_CELU_ALPHA };
/* hardtanh */
enum { LP_HARDTANH_MIN_VAL, LP_HARDTANH_MAX_VAL };
/* softshrink */
enum { LP_SOFTSHRINK_LAMBD };
/* logit */
enum { LP_LOGIT_EPS };
/* nan_to_num */
enum { LP_NAN_TO_NUM_NAN, LP_NAN_TO_NUM_POSINF, LP_NAN_TO_NUM_NEGINF };
/* mvlgamma */
enum { LP_MVLGAMMA_P };
/* polygamma */
enum { LP_POLYGAMMA_N };
/* round */
enum { LP_ROUND_DECIMALS };

/* ---- reductions --------------------------------------------------------- */
/* sum, mean, prod, amax, amin, any, all, count_nonzero, argmax, argmin,
 * max_dim, min_dim, median_dim, mode, logsumexp */
enum { LP_REDUCE_DIM, LP_REDUCE_KEEPDIM, LP_REDUCE_DTYPE };
/* vector_norm */
enum { LP_NORM_DIM, LP_NORM_KEEPDIM, LP_NORM_ORD, LP_NORM_DTYPE };
/* cumsum, cumprod */
enum { LP_CUMSUM_DIM, LP_CUMSUM_DTYPE, LP_CUMSUM_REVERSE };
/* recurrence, logcumsumexp, cummax, cummin, prod_others */
enum { LP_RUNNING_DIM, LP_RUNNING_REVERSE };
/* count_beyond */
enum { LP_COUNT_BEYOND_EDGE };
_Static_assert(!LP_REDUCE_DIM && !LP_NORM_DIM && !LP_CUMSUM_DIM &&
                   !LP_RUNNING_DIM,
               "shared rules find dim by any of these names");

/* ---- shapes ------------------------------------------------------------- */
/* permute */
enum { LP_PERMUTE_DIMS };
/* squeeze, unsqueeze */
enum { LP_SQUEEZE_DIM };
/* slice, slice_scatter */
enum { LP_SLICE_DIM, LP_SLICE_START, LP_SLICE_END, LP_SLICE_STEP };
/* select, select_scatter */
enum { LP_SELECT_DIM, LP_SELECT_INDEX };
/* as_strided */
enum {
    LP_STRIDED_SIZE,
    LP_STRIDED_STRIDE,
    LP_STRIDED_STORAGE_OFFSET,
    LP_STRIDED_GEOMETRY
};
/* slice_backward */
enum {
    LP_SLICE_BACK_SIZES,
    LP_SLICE_BACK_DIM,
    LP_SLICE_BACK_START,
    LP_SLICE_BACK_END,
    LP_SLICE_BACK_STEP
};
/* select_backward */
enum { LP_SELECT_BACK_SIZES, LP_SELECT_BACK_DIM, LP_SELECT_BACK_INDEX };
/* cat */
enum { LP_CAT_DIM };
/* flip */
enum { LP_FLIP_DIMS };
/* roll_along */
enum { LP_ROLL_DIM, LP_ROLL_FROM };
/* tril, triu */
enum { LP_TRI_DIAGONAL };
/* constant_pad_nd */
enum { LP_PAD_PAD, LP_PAD_VALUE };
/* pad_edges, pad_edges_backward */
enum { LP_EDGES_PAD, LP_EDGES_MODE };

/* ---- new tensors -------------------------------------------------------- */
/* full */
enum { LP_FULL_SIZE, LP_FULL_FILL_VALUE, LP_FULL_DTYPE };
/* arange */
enum { LP_ARANGE_START, LP_ARANGE_END, LP_ARANGE_STEP, LP_ARANGE_DTYPE };
/* logspace */
enum {
    LP_SPACE_START,
    LP_SPACE_END,
    LP_SPACE_STEPS,
    LP_SPACE_BASE, /* linspace has none, but the three before */
    LP_SPACE_DTYPE
};
/* tril_indices, triu_indices */
enum {
    LP_TRI_INDICES_ROW,
    LP_TRI_INDICES_COL,
    LP_TRI_INDICES_OFFSET,
    LP_TRI_INDICES_DTYPE
};
/* randint */
enum { LP_RANDINT_LOW, LP_RANDINT_HIGH, LP_RANDINT_SIZE, LP_RANDINT_DTYPE };
/* uniform */
enum { LP_UNIFORM_FROM, LP_UNIFORM_TO };
/* normal, log_normal, trunc_normal */
enum { LP_NORMAL_MEAN, LP_NORMAL_STD, LP_NORMAL_A, LP_NORMAL_B };
/* cauchy */
enum { LP_CAUCHY_MEDIAN, LP_CAUCHY_SIGMA };
/* random */
enum { LP_RANDOM_FROM, LP_RANDOM_TO };
/* multinomial */
enum { LP_MULTINOMIAL_NUM_SAMPLES, LP_MULTINOMIAL_REPLACEMENT };

/* ---- rows and elements by index ----------------------------------------- */
/* index_select, index_add_rows, gather, scatter, scatter_add */
enum { LP_INDEX_DIM };
/* scatter_reduce */
enum {
    LP_SCATTER_REDUCE_DIM,
    LP_SCATTER_REDUCE_REDUCE,
    LP_SCATTER_REDUCE_INCLUDE_SELF
};
/* embedding */
enum { LP_EMBEDDING_PADDING_IDX };
/* embedding_backward */
enum { LP_EMBEDDING_BACK_NUM_WEIGHTS, LP_EMBEDDING_BACK_PADDING_IDX };
/* embedding_bag_sum, embedding_bag_max, embedding_bag_backward */
enum {
    LP_BAG_INCLUDE_LAST_OFFSET,
    LP_BAG_PADDING_IDX,
    LP_BAG_MEAN,
    LP_BAG_NUM_WEIGHTS
};
/* index_set */
enum { LP_INDEX_SET_ACCUMULATE };
/* masked_unpack */
enum { LP_MASKED_EXACT };
/* dynamic_slice, dynamic_update */
enum { LP_DYNAMIC_DIM, LP_DYNAMIC_SIZE, LP_DYNAMIC_STEP };
/* sort */
enum { LP_SORT_DIM, LP_SORT_DESCENDING, LP_SORT_STABLE };
/* topk */
enum { LP_TOPK_K, LP_TOPK_DIM, LP_TOPK_LARGEST, LP_TOPK_SORTED };
/* searchsorted */
enum { LP_SEARCHSORTED_OUT_INT32, LP_SEARCHSORTED_RIGHT, LP_SEARCHSORTED_SIDE };
/* histc */
enum { LP_HISTC_BINS, LP_HISTC_MIN, LP_HISTC_MAX };
/* unique_all */
enum {
    LP_UNIQUE_CONSECUTIVE,
    LP_UNIQUE_DIM,
    LP_UNIQUE_RETURN_INVERSE,
    LP_UNIQUE_RETURN_COUNTS,
    LP_UNIQUE_ATTRS
};
/* bincount_any, bincount */
enum { LP_BINCOUNT_MINLENGTH };

/* ---- linear algebra ----------------------------------------------------- */
/* mm_plus, bmm_plus, addmm, baddbmm, addbmm, addmv, addr */
enum { LP_PLUS_BETA, LP_PLUS_ALPHA };
/* serialized_matmul */
enum { LP_SERIALIZED_MODE, LP_SERIALIZED_FACTOR, LP_SERIALIZED_KEEP_PRECISION };
/* lu_factor_ex, solve_matrix, inverse_matrix */
enum { LP_LU_CHECK_ERRORS, LP_LU_WHO, LP_LU_PIVOT };
/* lu_matrix */
enum { LP_LU_MATRIX_ROWS, LP_LU_MATRIX_DTYPE };
/* cholesky_ex, cholesky_solve_matrix */
enum { LP_CHOLESKY_UPPER, LP_CHOLESKY_CHECK_ERRORS, LP_CHOLESKY_WHO };
/* ldl_factor_ex */
enum { LP_LDL_CHECK_ERRORS, LP_LDL_WHO, LP_LDL_HERMITIAN };
/* ldl_solve_matrix */
enum { LP_LDL_SOLVE_HERMITIAN };
/* triangular */
enum { LP_TRIANGULAR_UPPER, LP_TRIANGULAR_LEFT, LP_TRIANGULAR_UNITRIANGULAR };
/* lstsq_matrix */
enum { LP_LSTSQ_DRIVER, LP_LSTSQ_RCOND };
/* svd */
enum { LP_SVD_FULL_MATRICES };
/* eigh, eigvalsh */
enum { LP_EIGH_UPLO };
/* pinv_matrix */
enum { LP_PINV_HERMITIAN };
/* matrix_norm, matrix_norm_named, linalg_norm, linalg_norm_named */
enum { LP_NORMS_ORD, LP_NORMS_DIM, LP_NORMS_KEEPDIM, LP_NORMS_DTYPE };

/* ---- neural networks ---------------------------------------------------- */
/* convolution, convolution_plus */
enum {
    LP_CONV_STRIDE,
    LP_CONV_PADDING,
    LP_CONV_DILATION,
    LP_CONV_TRANSPOSED,
    LP_CONV_OUTPUT_PADDING,
    LP_CONV_GROUPS,
    LP_CONV_ATTRS
};
/* conv1d, conv2d, conv3d, conv1d_padding, conv2d_padding, conv3d_padding */
enum { LP_CONVN_STRIDE, LP_CONVN_PADDING, LP_CONVN_DILATION, LP_CONVN_GROUPS };
/* conv_transpose1d, conv_transpose2d, conv_transpose3d */
enum {
    LP_CONVT_STRIDE,
    LP_CONVT_PADDING,
    LP_CONVT_OUTPUT_PADDING,
    LP_CONVT_GROUPS,
    LP_CONVT_DILATION
};
/* convolution_backward_input, convolution_backward_weight */
enum {
    LP_CONV_BACK_SIZE,
    LP_CONV_BACK_STRIDE, /* from here those of the convolution */
    LP_CONV_BACK_PADDING,
    LP_CONV_BACK_DILATION,
    LP_CONV_BACK_TRANSPOSED,
    LP_CONV_BACK_OUTPUT_PADDING,
    LP_CONV_BACK_GROUPS,
    LP_CONV_BACK_ATTRS
};
/* max_pool */
enum {
    LP_MAX_POOL_KERNEL_SIZE,
    LP_MAX_POOL_STRIDE,
    LP_MAX_POOL_PADDING,
    LP_MAX_POOL_DILATION,
    LP_MAX_POOL_CEIL_MODE
};
/* avg_pool */
enum {
    LP_AVG_POOL_KERNEL_SIZE,
    LP_AVG_POOL_STRIDE,
    LP_AVG_POOL_PADDING,
    LP_AVG_POOL_CEIL_MODE,
    LP_AVG_POOL_COUNT_INCLUDE_PAD,
    LP_AVG_POOL_DIVISOR_OVERRIDE,
    LP_AVG_POOL_ATTRS
};
/* avg_pool_backward */
enum {
    LP_AVG_BACK_SIZE,
    LP_AVG_BACK_KERNEL_SIZE, /* from here those of avg_pool */
    LP_AVG_BACK_STRIDE,
    LP_AVG_BACK_PADDING,
    LP_AVG_BACK_CEIL_MODE,
    LP_AVG_BACK_COUNT_INCLUDE_PAD,
    LP_AVG_BACK_DIVISOR_OVERRIDE,
    LP_AVG_BACK_ATTRS
};
/* max_pool_backward, max_pool_gather, adaptive_avg_pool,
 * adaptive_avg_pool_backward, adaptive_max_pool, adaptive_avg_pool1d,
 * adaptive_avg_pool2d, adaptive_avg_pool3d */
enum { LP_POOL_SIZE };
/* resample, resample_backward */
enum { LP_RESAMPLE_DIM };
/* grid_sampler, grid_sampler_backward */
enum {
    LP_GRID_INTERPOLATION_MODE,
    LP_GRID_PADDING_MODE,
    LP_GRID_ALIGN_CORNERS
};
/* their values, PyTorch's */
typedef enum { LP_GRID_BILINEAR, LP_GRID_NEAREST, LP_GRID_BICUBIC } LpGridMode;
typedef enum {
    LP_GRID_ZEROS,
    LP_GRID_BORDER,
    LP_GRID_REFLECTION
} LpGridPadding;
/* native_layer_norm, layer_norm_backward */
enum { LP_LAYER_NORM_NORMALIZED_SHAPE, LP_LAYER_NORM_EPS };
/* native_group_norm, group_norm_backward */
enum { LP_GROUP_NORM_NUM_GROUPS, LP_GROUP_NORM_EPS };
/* batch_norm_train, batch_norm_backward, batch_norm_relu,
 * batch_norm_relu_backward */
enum { LP_BATCH_NORM_EPS };
/* softmax, log_softmax, softmax_backward, log_softmax_backward */
enum { LP_SOFTMAX_DIM };
/* softmax_in, log_softmax_in, softmin */
enum { LP_SOFTMAX_IN_DIM, LP_SOFTMAX_IN_DTYPE };
/* dropout */
enum { LP_DROPOUT_P, LP_DROPOUT_TRAINING };
/* attention, attention_backward, attention_at_random,
   attention_at_random_backward */
enum { LP_ATTENTION_SCALE, LP_ATTENTION_IS_CAUSAL, LP_ATTENTION_SITES };
/* identity_loss */
enum { LP_IDENTITY_LOSS_REDUCTION };
/* nll_loss_forward, nll_loss_backward */
enum { LP_NLL_REDUCTION, LP_NLL_IGNORE_INDEX, LP_NLL_CLASSES };
/* ctc_loss_forward, ctc_loss_backward, ctc_loss_along */
enum { LP_CTC_LOSS_BLANK, LP_CTC_LOSS_ZERO_INFINITY };
/* ctc_beam_search_decoder */
enum { LP_CTC_BLANK, LP_CTC_BEAM_WIDTH, LP_CTC_TOP_PATHS };
/* nll_loss, cross_entropy */
enum {
    LP_LOSS_SIZE_AVERAGE,
    LP_LOSS_IGNORE_INDEX,
    LP_LOSS_REDUCE,
    LP_LOSS_REDUCTION,
    LP_LOSS_LABEL_SMOOTHING
};

/* ---- markers ------------------------------------------------------------ */
/* set_available_memory */
enum { LP_SET_AVAILABLE_MEMORY_PROPORTION };
/* set_overlap_for_input, set_overlap_for_output */
enum { LP_OVERLAP_MODE };
/* print_tensor */
enum {
    LP_PRINT_TITLE,
    LP_PRINT_PRINT_GRADIENT,
    LP_PRINT_SUMMARISE_THRESHOLD,
    LP_PRINT_EDGE_ITEMS,
    LP_PRINT_MAX_LINE_WIDTH,
    LP_PRINT_DIGITS,
    LP_PRINT_FLOAT_FORMAT,
    LP_PRINT_SEPARATOR,
    LP_PRINT_OPEN_BRACKET,
    LP_PRINT_CLOSE_BRACKET
};

#endif
