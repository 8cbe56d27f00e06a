// The proximal steps of many weights in one call, in place.
//
// A weight lies in memory as [blocks][rows][groups][taps]. A group of weights is one (block, group) and holds all rows
// and taps: a matrix whose rows are the groups has rows = 1, one whose columns are the groups has taps = 1. Two terms
// are taken in succession, each of which may be absent:
//
//     single   w <- w - sign(w) shrinkage(|w|)               a scalar penalty on each weight
//     group    w <- w - w shrinkage(||w_g||) / ||w_g||       a scalar penalty on the norm of each group
//
// The work is cut into tiles, some neighbouring groups of one block; where a tile fits into the cache, the second sweep
// finds there what the first one left. Nothing is allocated, and no group is split between threads, so the
// result does not depend on their number.
//
// The shrinkages are those of gossamer.penalties, where they are derived; tests hold both equal.

#include <cmath>
#include <cstdint>

namespace {

enum Kind : int32_t { absent, l0, l1, l2, transformed_l1, scad, mcp, logarithm, capped_l1 };

struct Term {
    int32_t kind;
    double first, second;  // the penalty's parameters, in the order of its dataclass
    double step;           // coefficient * strength * step size of the optimizer; new at every call
};

struct Weight {
    void *data;
    int64_t blocks, rows, groups, taps;
    int64_t tile;  // groups in a tile
    int32_t is_double;
    Term single, group;
};

constexpr int64_t chunk = 2048;         // weights that stay in the first-level cache from one loop to the next
constexpr int64_t largest_tile = 1024;  // groups; bounds the sums of a tile, which live on the stack

template <typename Real>
Real least(Real x, Real y) {
    return x < y ? x : y;
}

template <typename Real>
Real most(Real x, Real y) {
    return x > y ? x : y;
}

template <typename Real>
struct L0 {
    Real threshold;
    explicit L0(const Term &term) : threshold(Real(std::sqrt(2 * term.step))) {}
    Real operator()(Real m) const { return m <= threshold ? m : Real(0); }
};

template <typename Real>
struct L1 {
    Real step;
    explicit L1(const Term &term) : step(Real(term.step)) {}
    Real operator()(Real m) const { return least(m, step); }
};

template <typename Real>
struct L2 {
    Real factor;
    explicit L2(const Term &term) : factor(Real(term.step / (1 + term.step))) {}
    Real operator()(Real m) const { return m * factor; }
};

// (4/3) sin^2(acos(1 - y) / 3) / (1 - (1 - y)^2) on [0, 1]. It is analytic there, with its nearest singularity at
// y = 2, so polynomials converge fast: Chebyshev interpolation in 60 digits, relative error 2.3e-8 and 9e-17.
inline float root_polynomial(float y) {
    constexpr float c[] = {0.007071474897f, -0.02481210355f, 0.0429492141f,  -0.03843349264f,
                           0.02672559369f,  -0.002137391568f, 0.01454764987f, 0.02431968482f,
                           0.04716346404f,  0.08779108643f,   0.1481481498f};
    float q = c[0];
#pragma GCC unroll 32
    for (int i = 1; i < 11; ++i) q = q * y + c[i];
    return q;
}

inline double root_polynomial(double y) {
    constexpr double c[] = {
        0.00011663094523909857527, -0.0010500107291302787931, 0.0044780028580239262459,  -0.01190428478963399534,
        0.022024459486155474839,   -0.02999654935928267391,   0.031110008605222245559,   -0.025020214648657459369,
        0.015848029508939947413,   -0.0078394521736637094838, 0.0032168937702206163971,  -0.00075158854022619323671,
        0.00065465382867100539707, 0.00079278421247463955662, 0.0016615726086963896237,  0.0032699438894393453326,
        0.0064413363399427450005,  0.012627022269743971716,   0.024567167446462545695,   0.047147284457638508079,
        0.087791495198909029233,   0.14814814814814814151};
    double q = c[0];
#pragma GCC unroll 32
    for (int i = 1; i < 22; ++i) q = q * y + c[i];
    return q;
}

// (4/3) c sin^2(asin(h) / 3) with c = a + m, h^2 = u = (27/4) k a (a + 1) / c^3, without trigonometric functions:
// asin(h) = acos(v) with v = sqrt(1 - u), and sin^2(acos(v) / 3) / (1 - v^2), where 1 - v^2 = u, is smooth in y = 1 - v.
template <typename Real>
struct TransformedL1 {
    Real a, numerator, threshold;
    explicit TransformedL1(const Term &term) {
        const double s = term.first, k = term.step;
        a = Real(s);
        numerator = Real(6.75 * s * (s + 1) * k);
        threshold = Real(k <= s * s / (2 * (s + 1)) ? k * ((s + 1) / s) : std::sqrt(2 * (s + 1) * k) - s / 2);
    }
    Real operator()(Real m) const {
        const Real inverse = 1 / (m + a);
        const Real scaled = numerator * inverse * inverse;  // c u
        const Real y = 1 - std::sqrt(most(1 - scaled * inverse, Real(0)));
        const Real root = least(scaled * root_polynomial(y), m);
        return m <= threshold ? m : root;
    }
};

template <typename Real>
struct Scad {
    Real knee, cap, slope, step, rest, flat_cost;
    bool convex;
    explicit Scad(const Term &term) {
        const double gamma = term.second;
        knee = Real(term.first);
        cap = Real(gamma * term.first);
        slope = Real(term.step * term.first);
        step = Real(term.step);
        rest = Real(gamma - 1 - term.step);
        flat_cost = Real(term.step * term.first * (term.first * (gamma + 1) / 2));
        convex = term.step < gamma - 1;
    }
    Real operator()(Real m) const {
        const Real bent = most(step * (cap - m) / rest, Real(0));
        const Real point = least(most(m - slope, Real(0)), knee);
        const Real cost = slope * point + (m - point) * (m - point) / 2;
        const Real jump = (m > cap) & (cost > flat_cost) ? Real(0) : m - point;
        return convex ? least(least(m, slope), bent) : jump;
    }
};

template <typename Real>
struct Mcp {
    Real cap, step, rest, threshold;
    bool convex;
    explicit Mcp(const Term &term) {
        const double gamma = term.second;
        cap = Real(gamma * term.first);
        step = Real(term.step);
        rest = Real(gamma - term.step);
        threshold = Real(term.first * std::sqrt(gamma * term.step));
        convex = term.step < gamma;
    }
    Real operator()(Real m) const {
        const Real bent = least(m, most(step * (cap - m) / rest, Real(0)));
        return convex ? bent : (m <= threshold ? m : Real(0));
    }
};

template <typename Real>
struct ConvexLogarithm {
    Real offset, k, threshold;
    explicit ConvexLogarithm(const Term &term) {
        const double scaled = term.step / std::log1p(term.first);
        offset = Real(1 / term.first);
        k = Real(scaled);
        threshold = Real(scaled * term.first);
    }
    static bool holds(const Term &term) {
        return term.step / std::log1p(term.first) <= 1 / term.first * (1 / term.first);
    }
    Real operator()(Real m) const {
        const Real root = outer_root(m);
        return m > threshold ? least(root, m) : m;
    }
    Real outer_root(Real m) const {
        const Real c = m + offset, q = k / c;
        return 2 * q / (1 + std::sqrt(most(1 - 4 * q / c, Real(0))));
    }
};

// Beyond the convex range the logarithm itself is needed, which no vector instruction gives: a struct of its own, so
// that the loop above stays a vector loop.
template <typename Real>
struct Logarithm : ConvexLogarithm<Real> {
    Real gamma;
    explicit Logarithm(const Term &term) : ConvexLogarithm<Real>(term), gamma(Real(term.first)) {}
    Real operator()(Real m) const {
        const Real c = m + this->offset, root = this->outer_root(m), x = m - root;
        const bool real = 1 - 4 * (this->k / c) / c >= 0 && x > 0;
        return real && this->k * std::log1p(gamma * x) < x * (m + root) / 2 ? root : m;
    }
};

template <typename Real>
struct CappedL1 {
    Real a, step, flat_cost;
    explicit CappedL1(const Term &term)
        : a(Real(term.first)), step(Real(term.step)), flat_cost(Real(term.step * term.first)) {}
    Real operator()(Real m) const {
        const Real point = least(most(m - step, Real(0)), a);
        const Real cost = step * point + (m - point) * (m - point) / 2;
        return (m > a) & (cost > flat_cost) ? Real(0) : m - point;
    }
};

// action(shrinkage of the term)
template <typename Real, typename Action>
auto with_shrinkage(const Term &term, Action action) {
    switch (term.kind) {
        case l0: return action(L0<Real>(term));
        case l1: return action(L1<Real>(term));
        case l2: return action(L2<Real>(term));
        case transformed_l1: return action(TransformedL1<Real>(term));
        case scad: return action(Scad<Real>(term));
        case mcp: return action(Mcp<Real>(term));
        case logarithm:
            if (ConvexLogarithm<Real>::holds(term)) return action(ConvexLogarithm<Real>(term));
            return action(Logarithm<Real>(term));
        default: return action(CappedL1<Real>(term));
    }
}

// w <- w - sign(w) shrinkage(|w|). Returns a number that is not finite if a weight is not.
template <typename Real>
double single_step(Real *w, int64_t n, const Term &term) {
    return with_shrinkage<Real>(term, [=](const auto shrinkage) {
        Real check = 0;
#pragma omp simd reduction(+ : check)
        for (int64_t i = 0; i < n; ++i) {
            const Real m = std::fabs(w[i]);
            check += m * 0;
            w[i] -= std::copysign(shrinkage(m), w[i]);
        }
        return double(check);
    });
}

// Add the squares of `count` groups of `taps` neighbouring weights to the sums of the groups.
template <typename Real>
void add_squares(const Real *w, int64_t count, int64_t taps, double *sums) {
    if (taps == 1) {
#pragma omp simd
        for (int64_t g = 0; g < count; ++g) sums[g] += double(w[g]) * double(w[g]);
        return;
    }
    for (int64_t g = 0; g < count; ++g, w += taps)
        for (int64_t first = 0; first < taps; first += chunk) {
            const int64_t last = least(first + chunk, taps);
            Real sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t t = first; t < last; ++t) sum += w[t] * w[t];
            sums[g] += sum;
        }
}

// w <- w - w ratio, with the ratio of each group.
template <typename Real>
void rescale(Real *w, int64_t count, int64_t taps, const Real *ratios) {
    if (taps == 1) {
#pragma omp simd
        for (int64_t g = 0; g < count; ++g) w[g] -= w[g] * ratios[g];
        return;
    }
    for (int64_t g = 0; g < count; ++g, w += taps) {
        const Real ratio = ratios[g];
#pragma omp simd
        for (int64_t t = 0; t < taps; ++t) w[t] -= w[t] * ratio;
    }
}

// The part of each norm that goes: all of a group of zeros (or squares that underflow), unless there is no penalty.
template <typename Real>
void lost_parts(const double *sums, int64_t count, const Term &term, Real *ratios) {
    with_shrinkage<double>(term, [=, &term](const auto shrinkage) {
        for (int64_t g = 0; g < count; ++g) {
            const double norm = std::sqrt(sums[g]);
            ratios[g] = Real(norm > 0 ? shrinkage(norm) / norm : double(term.step > 0));
        }
    });
}

// Both terms on `count` groups of a block from `first` on. Returns a number that is not finite if a weight is not.
template <typename Real>
double tile_step(const Weight &weight, int64_t block, int64_t first, int64_t count) {
    const int64_t stride = weight.groups * weight.taps, length = count * weight.taps;
    Real *const start = static_cast<Real *>(weight.data) + block * weight.rows * stride + first * weight.taps;
    Real *const end = start + weight.rows * stride;
    double check = 0;
    if (weight.group.kind == absent) {
        for (Real *w = start; w < end; w += stride) check += single_step(w, length, weight.single);
        return check;
    }
    double sums[largest_tile] = {};
    for (Real *w = start; w < end; w += stride) {
        if (weight.single.kind != absent) single_step(w, length, weight.single);
        add_squares(w, count, weight.taps, sums);
    }
    Real ratios[largest_tile];
    lost_parts(sums, count, weight.group, ratios);
    for (int64_t g = 0; g < count; ++g) check += sums[g] * 0;
    for (Real *w = start; w < end; w += stride) rescale(w, count, weight.taps, ratios);
    return check;
}

}  // namespace

// Returns 1 where all weights are finite, 0 where one may not be: its square may also have overflowed.
extern "C" int32_t gossamer_step(const Weight *weights, int64_t count, int32_t threads) {
    double check = 0;
#pragma omp parallel num_threads(threads) reduction(+ : check) if (threads > 1)
    for (int64_t i = 0; i < count; ++i) {
        const Weight &weight = weights[i];
        const int64_t tiles = (weight.groups + weight.tile - 1) / weight.tile;
#pragma omp for schedule(static) nowait
        for (int64_t j = 0; j < weight.blocks * tiles; ++j) {
            const int64_t block = j / tiles, first = j % tiles * weight.tile;
            const int64_t groups = least(weight.tile, weight.groups - first);
            check += weight.is_double ? tile_step<double>(weight, block, first, groups)
                                      : tile_step<float>(weight, block, first, groups);
        }
    }
    return std::isfinite(check);
}
