/* The normalisations of norm.c for one element type; included once for each,
 * with T the type, L the set of loops, F(name) a function's name, SQRT. */

/* n numbers as halves, if statistics are. */
static void F(narrow)(const Norm *s, int64_t n, T *x)
{
    if (s->half)
        lp_pointwise_round(n, x, x, sizeof(T) == 4 ? LP_F32 : LP_F64, LP_F16);
}

/* The mean square of differences from `from` as the variance. */
static T F(variance)(const Norm *s, T square, T mean)
{
    T v = s->half ? square - mean * mean : square;
    return v < 0 ? 0 : v;
}

/* Row i of the work, if there is one. */
static T *F(buffer)(const Norm *s, void *work, int64_t i)
{
    return s->halves ? (T *)work + i * s->n : NULL;
}

/* Row i of a matrix of n columns, widened to `buf` if it is of halves. */
static const T *F(row)(const Norm *s, const void *x, int64_t i, T *buf)
{
    if (!s->halves)
        return (const T *)x + i * s->n;
    s->widen(s->n, buf, sizeof *buf, (const uint16_t *)x + i * s->n, 2);
    return buf;
}

/* Where row i is made, and the end of that. */
static T *F(made)(const Norm *s, void *y, int64_t i, T *buf)
{
    return s->halves ? buf : (T *)y + i * s->n;
}
static void F(put)(const Norm *s, void *y, int64_t i, const T *buf)
{
    if (s->halves)
        s->round(s->n, (uint16_t *)y + i * s->n, 2, buf, sizeof *buf);
}

static void F(layer)(const Norm *s, void *const *in, void *const *out,
                     void *work, int threads)
{
    const T *w = in[1], *b = in[2];
    T *mean = out[1], *rstd = out[2];
    const int64_t n = s->n, chunk = (s->rows + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        T *wide = F(buffer)(s, work, 2 * t);
        T *made = F(buffer)(s, work, 2 * t + 1);
        for (int64_t i = t * chunk; i < (t + 1) * chunk && i < s->rows; i++) {
            const T *row = F(row)(s, in[0], i, wide);
            T m = lp_nn()->L->sum(row, n) / (T)n;
            T v = lp_nn()->L->sum_diff2(row, n, s->half ? 0 : m) / (T)n;
            mean[i] = m;
            rstd[i] = 1 / SQRT(F(variance)(s, v, m) + (T)s->eps);
            F(narrow)(s, 1, &mean[i]);
            F(narrow)(s, 1, &rstd[i]);
            T *y = F(made)(s, out[0], i, made);
            lp_nn()->L->norm_row(row, n, mean[i], rstd[i], w, b, y);
            F(put)(s, out[0], i, y);
        }
    }
}

static void F(layer_back)(const Norm *s, void *const *in, void *const *out,
                          void *work, int threads)
{
    const T *mean = in[2], *rstd = in[3], *w = in[4];
    T *dw = out[1], *db = out[2], *part = work;
    const int64_t n = s->n, chunk = (s->rows + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        T *pw = t ? part + 2 * t * n : dw, *pb = t ? pw + n : db;
        T *wide = F(buffer)(s, work, 2 * threads + 3 * t);
        T *other = F(buffer)(s, work, 2 * threads + 3 * t + 1);
        T *made = F(buffer)(s, work, 2 * threads + 3 * t + 2);
        memset(pw, 0, (size_t)n * sizeof *pw);
        memset(pb, 0, (size_t)n * sizeof *pb);
        for (int64_t i = t * chunk; i < (t + 1) * chunk && i < s->rows; i++) {
            const T *g = F(row)(s, in[0], i, wide);
            const T *row = F(row)(s, in[1], i, other);
            T *dx = F(made)(s, out[0], i, made), a, c;
            lp_nn()->L->norm_back_sums(g, row, w, n, mean[i], rstd[i], &a, &c);
            lp_nn()->L->norm_back_row(g, row, w, n, mean[i], rstd[i], a / (T)n,
                                      c / (T)n, dx);
            lp_nn()->L->norm_back_params(g, row, n, mean[i], rstd[i], pw, pb);
            F(put)(s, out[0], i, dx);
        }
    }
    for (int t = 1; t < threads; t++) {
        const T *pw = part + 2 * t * n;
        for (int64_t i = 0; i < n; i++) {
            dw[i] += pw[i];
            db[i] += pw[n + i];
        }
    }
}

static void F(group)(const Norm *s, void *const *in, void *const *out,
                     void *work LP_UNUSED, int threads)
{
    const T *x = in[0], *w = in[1], *b = in[2];
    T *y = out[0], *mean = out[1], *rstd = out[2];
    const int64_t per = s->channels / s->groups, n = per * s->inner;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < s->batch * s->groups; i++) {
        const T *row = x + i * n;
        T m = lp_nn()->L->sum(row, n) / (T)n;
        T v = lp_nn()->L->sum_diff2(row, n, s->half ? 0 : m) / (T)n;
        T r = 1 / SQRT(F(variance)(s, v, m) + (T)s->eps);
        F(narrow)(s, 1, &m);
        F(narrow)(s, 1, &r);
        mean[i] = m;
        rstd[i] = r;
        for (int64_t c = 0; c < per; c++) {
            int64_t ch = i % s->groups * per + c;
            lp_nn()->L->center(row + c * s->inner, s->inner, m,
                               w ? w[ch] * r : r, b ? b[ch] : 0,
                               y + i * n + c * s->inner);
        }
    }
}

/* Sums of dy and dy (x - mean) of every channel of every sample come first;
 * everything else is made of them. */
static void F(group_back)(const Norm *s, void *const *in, void *const *out,
                          void *work, int threads)
{
    const T *dy = in[0], *x = in[1], *mean = in[2], *rstd = in[3], *w = in[4];
    T *dx = out[0], *dw = out[1], *db = out[2];
    T *sum = work, *sumx = sum + s->batch * s->channels;
    const int64_t per = s->channels / s->groups, n = per * s->inner;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < s->batch * s->groups; i++) {
        T a = 0, b = 0, r = rstd[i];
        for (int64_t c = 0; c < per; c++) {
            int64_t q = i * per + c, at = q * s->inner;
            T wc = w ? w[q % s->channels] : 1;
            sum[q] = sumx[q] = 0;
            lp_nn()->L->dot2(dy + at, x + at, s->inner, mean[i], &sum[q],
                             &sumx[q]);
            a += sum[q] * wc;
            b += sumx[q] * wc;
        }
        a /= (T)n;
        b = b * r * r / (T)n;
        for (int64_t c = 0; c < per; c++) {
            int64_t q = i * per + c, at = q * s->inner;
            T wc = w ? w[q % s->channels] : 1;
            lp_nn()->L->center2(dy + at, x + at, s->inner, mean[i], wc * r,
                                -b * r, -a * r, dx + at);
        }
    }
    for (int64_t c = 0; c < s->channels; c++) {
        dw[c] = db[c] = 0;
        for (int64_t i = 0; i < s->batch; i++) {
            int64_t q = i * s->channels + c;
            dw[c] += sumx[q] * rstd[q / per];
            db[c] += sum[q];
        }
    }
}

/* ---- batch: statistics of a channel over samples and places -------------- */
/* Planes of one element: run along the channels instead. */
static void F(batch_flat)(const Norm *s, const T *x, T *mean, T *var)
{
    for (int64_t c = 0; c < s->channels; c++)
        mean[c] = var[c] = 0;
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t c = 0; c < s->channels; c++)
            mean[c] += x[i * s->channels + c];
    for (int64_t c = 0; c < s->channels; c++)
        mean[c] /= (T)s->batch;
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t c = 0; c < s->channels; c++) {
            T d = x[i * s->channels + c] - (s->half ? 0 : mean[c]);
            var[c] += d * d;
        }
    for (int64_t c = 0; c < s->channels; c++)
        var[c] = F(variance)(s, var[c] / (T)s->batch, mean[c]);
}

static void F(batch_stats)(const Norm *s, const T *x, T *mean, T *var,
                           int threads)
{
    const int64_t n = s->batch * s->inner, step = s->channels * s->inner;
    if (s->inner == 1) {
        F(batch_flat)(s, x, mean, var);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < s->channels; c++) {
        T m = 0, v = 0;
        for (int64_t i = 0; i < s->batch; i++)
            m += lp_nn()->L->sum(x + i * step + c * s->inner, s->inner);
        m /= (T)n;
        for (int64_t i = 0; i < s->batch; i++)
            v += lp_nn()->L->sum_diff2(x + i * step + c * s->inner, s->inner,
                                       s->half ? 0 : m);
        mean[c] = m;
        var[c] = F(variance)(s, v / (T)n, m);
    }
}

/* y = relu(y + add), the addition unless add is NULL */
static void F(relu)(const T *add, int64_t n, T *y)
{
    for (int64_t i = 0; add && i < n; i++)
        y[i] += add[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static T F(rstd)(const Norm *s, T var)
{
    T r = 1 / SQRT(var + (T)s->eps);
    F(narrow)(s, 1, &r);
    return r;
}

static void F(batch)(const Norm *s, void *const *in, void *const *out,
                     void *work, int threads)
{
    const T *x = in[0], *w = in[1], *b = in[2], *add = s->relu ? in[3] : NULL;
    T *y = out[0], *var = out[2], *scale = work, *mean = scale + s->channels;
    F(batch_stats)(s, x, out[1], var, threads);
    memcpy(mean, out[1], (size_t)s->channels * sizeof *mean);
    F(narrow)(s, s->channels, mean);
    for (int64_t c = 0; c < s->channels; c++)
        scale[c] = s->half ? F(rstd)(s, var[c]) * (w ? w[c] : 1)
                           : (w ? w[c] : 1) / SQRT(var[c] + (T)s->eps);
    if (s->inner == 1) {
        for (int64_t i = 0; i < s->batch; i++)
            for (int64_t c = 0; c < s->channels; c++) {
                int64_t q = i * s->channels + c;
                y[q] = (x[q] - mean[c]) * scale[c] + (b ? b[c] : 0);
            }
        if (s->relu)
            F(relu)(add, s->batch * s->channels, y);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < s->batch * s->channels; q++) {
        int64_t c = q % s->channels, at = q * s->inner;
        lp_nn()->L->center(x + at, s->inner, mean[c], scale[c], b ? b[c] : 0,
                           y + at);
        if (s->relu)
            F(relu)(add ? add + at : NULL, s->inner, y + at);
    }
}

static void F(batch_sums)(const Norm *s, const T *dy, const T *x, const T *mean,
                          T *sum, T *sumx, int threads)
{
    memset(sum, 0, (size_t)s->channels * sizeof *sum);
    memset(sumx, 0, (size_t)s->channels * sizeof *sumx);
    if (s->inner == 1) {
        for (int64_t i = 0; i < s->batch; i++)
            for (int64_t c = 0; c < s->channels; c++) {
                int64_t q = i * s->channels + c;
                sum[c] += dy[q];
                sumx[c] += dy[q] * (x[q] - mean[c]);
            }
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < s->batch; i++) {
            int64_t at = (i * s->channels + c) * s->inner;
            lp_nn()->L->dot2(dy + at, x + at, s->inner, mean[c], &sum[c],
                             &sumx[c]);
        }
}

/* dy where the ReLU's result y was positive */
static void F(masked)(const T *dy, const T *y, int64_t n, int threads, T *out)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        T d = dy[i]; /* always, so that vectors do */
        out[i] = y[i] <= 0 ? 0 : d;
    }
}

static void F(batch_back)(const Norm *s, void *const *in, void *const *out,
                          void *work, int threads)
{
    const T *dy = in[0], *x = in[1], *var = in[3], *w = in[4];
    T *dx = out[0], *dw = out[1], *db = out[2];
    T *ka = work, *kb = ka + s->channels, *kc = kb + s->channels;
    T *mean = kc + s->channels;
    const T n = (T)(s->batch * s->inner);
    memcpy(mean, in[2], (size_t)s->channels * sizeof *mean);
    F(narrow)(s, s->channels, mean);
    if (s->relu) {
        T *d = mean + s->channels;
        F(masked)(dy, in[5], s->batch * s->channels * s->inner, threads, d);
        dy = d;
    }
    F(batch_sums)(s, dy, x, mean, db, dw, threads);
    for (int64_t c = 0; c < s->channels; c++) {
        T r = F(rstd)(s, var[c]), wr = (w ? w[c] : 1) * r;
        ka[c] = wr;
        kb[c] = -wr * r * r * dw[c] / n;
        kc[c] = -wr * db[c] / n;
        if (n > 0) /* else there is no variance */
            dw[c] *= r;
    }
    if (s->inner == 1) {
        for (int64_t i = 0; i < s->batch; i++)
            for (int64_t c = 0; c < s->channels; c++) {
                int64_t q = i * s->channels + c;
                dx[q] = dy[q] * ka[c] + (x[q] - mean[c]) * kb[c] + kc[c];
            }
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t q = 0; q < s->batch * s->channels; q++) {
        int64_t c = q % s->channels, at = q * s->inner;
        lp_nn()->L->center2(dy + at, x + at, s->inner, mean[c], ka[c], kb[c],
                            kc[c], dx + at);
    }
}
