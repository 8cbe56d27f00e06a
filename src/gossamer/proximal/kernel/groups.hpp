// The proximal steps of penalties on groups: sweeps over a tile that accumulate sums per group, then one that moves the
// weights. The first sweep applies the preceding scalar penalty, if there is one.

#pragma once

#include <algorithm>
#include <cmath>

#include "norm.hpp"
#include "tile.hpp"

namespace gossamer {

// move(g, i) for each weight i of a chunk and its group g, counted from the first group of the chunk. With one tap the
// vectors run over groups, otherwise over the weights of a group.
template <typename Move>
void by_group(int64_t n, int64_t taps, const Move move) {
    if (taps == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) move(i, i);
        return;
    }
    for (int64_t g = 0, first = 0; first < n; ++g, first += taps) {
        const int64_t last = least(first + taps, n);
#pragma omp simd
        for (int64_t i = first; i < last; ++i) move(g, i);
    }
}

// sums[g] += part(g, i) over the weights i of each group g; chunks are added in double precision.
template <typename Real, typename Part>
void add_up(double *sums, int64_t n, int64_t taps, const Part part) {
    if (taps == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sums[i] += double(part(i, i));
        return;
    }
    for (int64_t g = 0, first = 0; first < n; ++g, first += taps) {
        const int64_t last = least(first + taps, n);
        Real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = first; i < last; ++i) sum += part(g, i);
        sums[g] += sum;
    }
}

// w <- w - w shrinkage(||w_g||) / ||w_g||
template <typename Real>
double norm_step(Tile<Real> &tile, const Term *single, const Term &term) {
    double sums[largest_tile], check = 0;
    std::fill_n(sums, tile.count, 0.0);
    tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
        if (single) check += single_step(w, p, n, *single, tile.k(*single));
        if (tile.taps == 1)
            add_up<double>(sums + group, n, 1, [=](int64_t, int64_t i) { return double(w[i]) * double(w[i]); });
        else
            add_up<Real>(sums + group, n, tile.taps, [=](int64_t, int64_t i) { return w[i] * w[i]; });
    });
    Real ratios[largest_tile];
    with_penalty<double>(term, [&](const auto penalty) {
        const double k = tile.k(term);
        const auto shrinkage = penalty.at(k);
        for (int64_t g = 0; g < tile.count; ++g) {
            const double norm = std::sqrt(sums[g]);
            check += sums[g] * 0;
            // a group of zeros (or of squares that underflow) is zero, unless there is no penalty
            ratios[g] = Real(norm > 0 ? shrinkage(norm) / norm : double(k > 0));
        }
    });
    tile.for_chunks([&](Real *w, const Real *, int64_t group, int64_t n) {
        const Real *const own = ratios + group;
        by_group(n, tile.taps, [=](int64_t g, int64_t i) { w[i] -= w[i] * own[g]; });
    });
    return check;
}

// sums[j][g] += sum of w^2 p^j over the members of each group
template <typename Real>
void add_moments(double (*sums)[largest_tile], int64_t group, const Real *w, const Real *p, int64_t n, int64_t taps) {
    if (taps == 1) {
        double *const m0 = sums[0] + group, *const m1 = sums[1] + group, *const m2 = sums[2] + group,
               *const m3 = sums[3] + group;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            double part = double(w[i]) * double(w[i]) * double(p[i] > 0);
            m0[i] += part;
            m1[i] += part *= p[i];
            m2[i] += part *= p[i];
            m3[i] += part *= p[i];
        }
        return;
    }
    for (int64_t g = group, first = 0; first < n; ++g, first += taps) {
        const int64_t last = least(first + taps, n);
        Real m0 = 0, m1 = 0, m2 = 0, m3 = 0;
#pragma omp simd reduction(+ : m0, m1, m2, m3)
        for (int64_t i = first; i < last; ++i) {
            Real part = w[i] * w[i] * Real(p[i] > 0);  // a branch here would keep GCC's sums in memory
            m0 += part;
            m1 += part *= p[i];
            m2 += part *= p[i];
            m3 += part *= p[i];
        }
        sums[0][g] += m0, sums[1][g] += m1, sums[2][g] += m2, sums[3][g] += m3;
    }
}

// w_i <- w_i - w_i p_i / (rho_g + p_i), see norm.hpp
template <typename Real>
double norm_step_in_metric(Tile<Real> &tile, const Term *single, const Term &term) {
    double sums[moment_count][largest_tile], check = 0;
    for (auto &moment : sums) std::fill_n(moment, tile.count, 0.0);  // not more: it would evict the tile
    tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
        if (single) check += single_step(w, p, n, *single, tile.k(*single));
        add_moments(sums, group, w, p, n, tile.taps);
    });
    Real stiff[largest_tile];
    static thread_local Members members;
    const Profile phi(term);
    const double tolerance = sizeof(Real) == sizeof(float) ? 2e-6 : 1e-15;
    for (int64_t g = 0; g < tile.count; ++g) {
        check += sums[0][g] * 0;
        const auto gather = [&]() -> const Members & {
            members.clear();
            tile.for_members(g, [&](double w, double p) { members.add(w, p); });
            return members;
        };
        const Moments moments{{sums[0][g], sums[1][g], sums[2][g], sums[3][g]}};
        stiff[g] = Real(stiffness(phi, tile.k(term), moments, tolerance, gather));
    }
    tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
        const Real *const own = stiff + group;
        by_group(n, tile.taps, [=](int64_t g, int64_t i) {
            const Real part = p[i] / (own[g] + p[i]);
            w[i] -= p[i] > 0 ? w[i] * part : Real(0);
        });
    });
    return check;
}

// Soft threshold by k p_i S with S = ||x||_1, the root of sum_i max(|w_i| - k p_i S, 0) = S. The left side is convex and
// piecewise linear: Newton's method from 0 increases to the root and stops when no further weight is thresholded.
template <typename Real>
double exclusive_step(Tile<Real> &tile, const Term *single, const Term &term) {
    const double k = tile.k(term);
    const Real own_k = Real(k);
    Real totals[largest_tile] = {};
    double check = 0;
    for (bool first = true, rising = true; rising; first = false) {
        double magnitudes[largest_tile] = {}, steps[largest_tile] = {};
        tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
            if (first && single) check += single_step(w, p, n, *single, tile.k(*single));
            const Real *const total = totals + group;
            const auto step_of = [=](int64_t i) { return p ? p[i] : Real(1); };
            const auto survives = [=](int64_t g, int64_t i) {
                return (step_of(i) > 0) & (std::fabs(w[i]) > own_k * total[g] * step_of(i));
            };
            add_up<Real>(magnitudes + group, n, tile.taps,
                         [=](int64_t g, int64_t i) { return std::fabs(w[i]) * Real(survives(g, i)); });
            add_up<Real>(steps + group, n, tile.taps,
                         [=](int64_t g, int64_t i) { return step_of(i) * Real(survives(g, i)); });
        });
        rising = false;
        for (int64_t g = 0; g < tile.count; ++g) {
            if (first) check += magnitudes[g] * 0;
            const Real next = Real(term.kind == exclusive ? magnitudes[g] / (1 + k * steps[g]) : magnitudes[g]);
            rising |= term.kind == exclusive && next > totals[g];
            totals[g] = most(totals[g], next);
        }
    }
    tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
        const Real *const total = totals + group;
        by_group(n, tile.taps, [=](int64_t g, int64_t i) {
            const Real distance = own_k * total[g] * (p ? p[i] : Real(1));
            w[i] -= std::copysign(least(std::fabs(w[i]), distance), w[i]);
        });
    });
    return check;
}

// z (1 + k / ||z||) with z = soft_threshold(w, k); if z = 0, only the first weight of the largest magnitude remains.
template <typename Real>
double l1_minus_l2_step(Tile<Real> &tile, const Term *single, const Term &term) {
    const double k = tile.k(term);
    const Real own_k = Real(k);
    const auto soft = [=](Real w) { return w - std::copysign(least(std::fabs(w), own_k), w); };
    double sums[largest_tile], check = 0;
    std::fill_n(sums, tile.count, 0.0);
    tile.for_chunks([&](Real *w, const Real *p, int64_t group, int64_t n) {
        if (single) check += single_step(w, p, n, *single, tile.k(*single));
        add_up<Real>(sums + group, n, tile.taps, [=](int64_t, int64_t i) { return soft(w[i]) * soft(w[i]); });
    });
    Real factors[largest_tile];
    for (int64_t g = 0; g < tile.count; ++g) {
        check += sums[g] * 0;
        factors[g] = Real(k / std::sqrt(sums[g]));
        if (sums[g] > 0) continue;
        Real *largest = nullptr;
        tile.for_members(g, [&](Real &w, Real) {
            if (largest == nullptr || std::fabs(w) > std::fabs(*largest)) largest = &w;
        });
        tile.for_members(g, [&](Real &w, Real) {
            if (&w != largest) w = 0;
        });
    }
    tile.for_chunks([&](Real *w, const Real *, int64_t group, int64_t n) {
        const Real *const factor = factors + group;
        const double *const sum = sums + group;
        by_group(n, tile.taps, [=](int64_t g, int64_t i) {
            const Real z = soft(w[i]);
            w[i] = sum[g] > 0 ? z + z * factor[g] : w[i];
        });
    });
    return check;
}

template <typename Real>
double group_step(Tile<Real> &tile, const Term *single, const Term &term) {
    switch (term.kind) {
        case exclusive:
        case exclusive_of_input: return exclusive_step(tile, single, term);
        case l1_minus_l2: return l1_minus_l2_step(tile, single, term);
        default: return tile.has_metric() ? norm_step_in_metric(tile, single, term) : norm_step(tile, single, term);
    }
}

}  // namespace gossamer
