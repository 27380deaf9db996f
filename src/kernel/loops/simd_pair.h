/* Functions of the loops of binary.def, for the type T with names M(f).
 * Included twice by simd_binary.c, hence without a guard. */

/* Python's floor division: the quotient of what fmod leaves over, r, brought to
 * the integer below. */
static inline T M(div_floor)(T x, T y, T r)
{
    T q = (x - r) / y;
    q = r != 0 && (r < 0) != (y < 0) ? q - 1 : q;
    T f = M(floor)(q);
    f = q - f > C(0.5) ? f + 1 : f;
    f = q == 0 ? M(copysign)(C(0), x / y) : f;
    return y == 0 ? x / y : f;
}

/* Python's modulo, of what fmod leaves over: the divisor's sign. */
static inline T M(mod)(T r, T y)
{
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* A NaN bound wins; the upper bound wins over a lower one above it. */
static inline T M(clip)(T x, T lo, T hi)
{
    T t = x < lo || lo != lo ? lo : x;
    return t > hi || hi != hi ? hi : t;
}

static inline T M(xlogy)(T x, T y)
{
    T v = x * M(log)(y);
    v = x == 0 ? 0 : v;
    return y != y ? y : v;
}

static inline T M(xlog1py)(T x, T y)
{
    T v = x * M(log1p)(y);
    v = x == 0 ? 0 : v;
    return y != y ? y : v;
}

/* Equal infinities would subtract to NaN. */
static inline T M(logaddexp)(T x, T y)
{
    T top = x > y || x != x ? x : y;
    T v = top + M(log1p)(M(exp)(-M(fabs)(x - y)));
    return x == y && M(fabs)(x) == (T)INFINITY ? x : v;
}

static inline T M(logaddexp2)(T x, T y)
{
    T top = x > y || x != x ? x : y;
    T v = top + M(log1p)(M(exp2)(-M(fabs)(x - y))) * C(1.4426950408889634);
    return x == y && M(fabs)(x) == (T)INFINITY ? x : v;
}

/* c (|d| - c / 2) scale, c = min(|d|, edge), d = x - y */
static inline T M(two_parts)(T x, T y, T edge, T scale)
{
    const T a = M(fabs)(x - y), c = a < edge || a != a ? a : edge;
    return c * (a + C(-0.5) * c) * scale;
}

static inline T M(silu_backward)(T g, T x)
{
    T s = M(sigmoid)(x);
    return g * (s * (C(1) + x * (C(1) - s)));
}

static inline T M(gelu_tanh_backward)(T g, T x)
{
    T t = M(tanh)(GELU_U(x));
    T du = C(LP_GELU_SCALE) * (C(1) + C(3 * LP_GELU_CUBE) * x * x);
    T left = C(0.5) * (C(1) + t);
    return g * (left + C(0.5) * x * (C(1) - t * t) * du);
}
