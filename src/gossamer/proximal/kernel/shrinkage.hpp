// The shrinkage of a magnitude m by the proximal step of k * penalty: `penalty.at(k)(m)`.
//
// The formulas are derived in gossamer.penalties. `at` precomputes what depends on k only: once per tensor, in double
// precision, if all weights take the same step, otherwise in every vector lane. Some penalties have a faster formula
// `quick(k)(m)`, which is valid for every m if `is_quick(k)`, and for m = 0 with every k.

#pragma once

#include <cmath>

#include "power.hpp"
#include "table.hpp"

namespace gossamer {

template <typename Real>
struct L0 {
    static constexpr bool has_quick = false;
    explicit L0(const Term &) {}

    template <typename K>
    auto at(K k) const {
        const Real threshold = Real(std::sqrt(2 * k));
        return [=](Real m) { return m <= threshold ? m : Real(0); };
    }
};

template <typename Real>
struct L1 {
    static constexpr bool has_quick = false;
    explicit L1(const Term &) {}

    template <typename K>
    auto at(K k) const {
        return [step = Real(k)](Real m) { return least(m, step); };
    }
};

template <typename Real>
struct L2 {
    static constexpr bool has_quick = false;
    explicit L2(const Term &) {}

    template <typename K>
    auto at(K k) const {
        return [factor = Real(k / (1 + k))](Real m) { return m * factor; };
    }
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

// (4/3) sin^2(asin(sqrt(u)) / 3) / u on [0, 1/4], relative error 1.1e-8.
inline float small_polynomial(float u) {
    constexpr float c[] = {0.01474967553f, 0.007954343933f, 0.0147607531f, 0.02274205387f, 0.04389615445f, 0.1481481467f};
    float q = c[0];
#pragma GCC unroll 32
    for (int i = 1; i < 6; ++i) q = q * u + c[i];
    return q;
}

// (4/3) c sin^2(asin(h) / 3) with c = a + m, h^2 = u = (27/4) k a (a + 1) / c^3, without trigonometric functions:
// asin(h) = acos(v) with v = sqrt(1 - u), and sin^2(acos(v) / 3) / (1 - v^2), where 1 - v^2 = u, is smooth in y = 1 - v.
// All lengths are divided by max(a, 1); otherwise their powers would overflow for large a.
//
// quick: for u <= 1/4 a polynomial in u needs no square root. For magnitudes above the threshold k (a + 1) / a of the convex
// case, u <= (27/4) q / (1 + q)^3 with q = k (a + 1) / a^2, which is below 1/4 for q <= 0.0414.
template <typename Real>
struct TransformedL1 {
    static constexpr bool has_quick = sizeof(Real) == sizeof(float);
    double a, length;
    explicit TransformedL1(const Term &term) : a(term.first), length(term.first > 1 ? term.first : 1) {}

    // constants of c and u
    struct Root {
        Real unit, scale, numerator;
        template <typename K>
        Root(const TransformedL1 &own, K k)
            : unit(Real(1 / own.length)),
              scale(Real(own.a / own.length)),
              numerator(Real(K(6.75 * (own.a / own.length) * ((own.a + 1) / own.length)) * k)) {}
    };

    template <typename K>
    auto at(K k) const {
        const bool convex = k <= K(a / 2 * (a / (a + 1)));
        const Real threshold = Real(convex ? k * K((a + 1) / a) : std::sqrt(K(2 * (a + 1)) * k) - K(a / 2));
        return [=, root = Root(*this, k)](Real m) {
            const Real inverse = 1 / (m * root.unit + root.scale);
            const Real scaled = root.numerator * inverse * inverse;
            const Real y = 1 - std::sqrt(most(1 - scaled * inverse * root.unit, Real(0)));
            const Real moved = least(scaled * root_polynomial(y), m);
            return m <= threshold ? m : moved;
        };
    }

    bool is_quick(double k) const { return k * ((a + 1) / a) <= 0.0414 * a; }

    template <typename K>
    auto quick(K k) const {
        const Real threshold = Real(k * K((a + 1) / a));
        return [=, root = Root(*this, k)](Real m) {
            const Real inverse = 1 / (m * root.unit + root.scale);
            const Real scaled = root.numerator * inverse * inverse, u = scaled * inverse * root.unit;
            const Real moved = least(scaled * Real(small_polynomial(u)), m);
            return m <= threshold ? m : moved;
        };
    }
};

template <typename Real>
struct Scad {
    static constexpr bool has_quick = false;
    double knee, gamma;
    explicit Scad(const Term &term) : knee(term.first), gamma(term.second) {}

    template <typename K>
    auto at(K k) const {
        const double width = gamma - 1;
        const Real first = Real(knee), cap = Real(gamma * knee), slope = Real(k * K(knee)), step = Real(k);
        const Real top = Real(knee * (gamma / width)), inverse = Real(1 / width), rest = Real(1 - k / K(width));
        const Real flat_cost = Real(k * K(knee * (knee * (gamma + 1) / 2)));
        const bool convex = k < K(width);
        return [=](Real m) {
            const Real bent = most(step * (top - m * inverse) / rest, Real(0));
            const Real point = least(most(m - slope, Real(0)), first);
            const Real cost = slope * point + (m - point) * (m - point) / 2;
            const Real jump = ((m > cap) & (cost > flat_cost)) ? Real(0) : m - point;
            return convex ? least(least(m, slope), bent) : jump;
        };
    }
};

template <typename Real>
struct Mcp {
    static constexpr bool has_quick = false;
    double knee, gamma;
    explicit Mcp(const Term &term) : knee(term.first), gamma(term.second) {}

    template <typename K>
    auto at(K k) const {
        const Real top = Real(knee), inverse = Real(1 / gamma), step = Real(k), rest = Real(1 - k / K(gamma));
        const Real threshold = Real(K(knee) * std::sqrt(K(gamma) * k));
        const bool convex = k < K(gamma);
        return [=](Real m) {
            const Real bent = least(m, most(step * (top - m * inverse) / rest, Real(0)));
            return convex ? bent : (m <= threshold ? m : Real(0));
        };
    }
};

// quick: the convex case needs no logarithm, for which there is no vector instruction.
template <typename Real>
struct Logarithm {
    static constexpr bool has_quick = true;
    double gamma, scale;  // scale = log(1 + gamma)
    explicit Logarithm(const Term &term) : gamma(term.first), scale(std::log1p(term.first)) {}

    struct Root {
        Real offset, k;
        Real operator()(Real m) const {
            const Real c = m + offset, q = k / c;
            return 2 * q / (1 + std::sqrt(most(1 - 4 * q / c, Real(0))));
        }
    };

    bool is_quick(double k) const { return k / scale <= 1 / gamma * (1 / gamma); }

    template <typename K>
    auto quick(K k) const {
        const Real offset = Real(1 / gamma), own = Real(k / K(scale)), threshold = Real(k / K(scale) * K(gamma));
        return [=, root = Root{offset, own}](Real m) { return m > threshold ? least(root(m), m) : m; };
    }

    template <typename K>
    auto at(K k) const {
        const Real offset = Real(1 / gamma), own = Real(k / K(scale)), threshold = Real(k / K(scale) * K(gamma));
        const bool convex = own <= offset * offset;
        return [=, g = Real(gamma), root = Root{offset, own}](Real m) {
            const Real c = m + offset, moved = root(m), x = m - moved;
            const bool real = 1 - 4 * (own / c) / c >= 0 && x > 0;
            const bool beats_zero = real && own * std::log1p(g * x) < x * (m + moved) / 2;
            return (convex ? m > threshold : beats_zero) ? least(moved, m) : m;
        };
    }
};

template <typename Real>
struct CappedL1 {
    static constexpr bool has_quick = false;
    double a;
    explicit CappedL1(const Term &term) : a(term.first) {}

    template <typename K>
    auto at(K k) const {
        const Real cap = Real(a), step = Real(k), flat_cost = Real(k * K(a));
        return [=](Real m) {
            const Real point = least(most(m - step, Real(0)), cap);
            const Real cost = step * point + (m - point) * (m - point) / 2;
            return ((m > cap) & (cost > flat_cost)) ? Real(0) : m - point;
        };
    }
};

// With x = m t the outer root solves 1 - t = e t^(p-1), e = k p m^(p-2), so 1 - t is a function of e only. It is a double
// root at e = largest, and the result is zero from e = last on. (1 - t) / e is smooth in y = 1 - sqrt(1 - e / largest);
// `series` holds its Chebyshev coefficients on 0 <= e <= last, computed in gossamer.proximal.table.
template <typename Real>
struct Lp {
    static constexpr bool has_quick = false;
    double p, largest, last, stretch;
    const double *series;

    explicit Lp(const Term &term) : p(term.first), series(term.series) {
        largest = std::pow((1 - p) / (2 - p), 1 - p) / (2 - p);
        last = largest * p * std::exp2(1 - p);
        stretch = 2 / (1 - std::sqrt(1 - last / largest));
    }

    template <typename K>
    auto at(K k) const {
        return [=, *this, kp = double(k) * p](Real magnitude) {
            const double m = magnitude;
            const double e = kp * power(most(m, 1e-300), p - 2);
            const double y = 1 - std::sqrt(1 - least(e, last) / largest), x = y * stretch - 1;
            double b = 0, before = 0;
#pragma GCC unroll 32
            for (int i = series_length - 1; i > 0; --i) {  // Clenshaw
                const double next = 2 * x * b - before + series[i];
                before = b;
                b = next;
            }
            const double moved = m * (e * (x * b - before + series[0]));
            return e < last ? Real(least(moved, m)) : magnitude;
        };
    }
};

// action(penalty)
template <typename Real, typename Action>
auto with_penalty(const Term &term, Action action) {
    switch (term.kind) {
        case l0: return action(L0<Real>(term));
        case l1: return action(L1<Real>(term));
        case l2: return action(L2<Real>(term));
        case transformed_l1: return action(TransformedL1<Real>(term));
        case scad: return action(Scad<Real>(term));
        case mcp: return action(Mcp<Real>(term));
        case logarithm: return action(Logarithm<Real>(term));
        case capped_l1: return action(CappedL1<Real>(term));
        default: return action(Lp<Real>(term));
    }
}

}  // namespace gossamer
