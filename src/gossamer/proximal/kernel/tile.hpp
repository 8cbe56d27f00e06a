// A tile: all rows of `count` consecutive groups in one block of a weight [blocks][rows][groups][taps].

#pragma once

#include "metric.hpp"
#include "shrinkage.hpp"
#include "table.hpp"

namespace gossamer {

constexpr int64_t chunk = 4096;         // weights of a row that are processed together; they stay in the cache
constexpr int64_t quick_chunk = 512;    // weights for which the quick formula is valid, or not
constexpr int64_t largest_tile = 1024;  // groups; bounds the arrays per group on the stack

// w <- w - sign(w) distance(i, |w|). The result is not finite if a weight is not.
template <typename Real, typename Distance>
Real move(Real *w, int64_t n, const Distance distance) {
    Real check = 0;
#pragma omp simd reduction(+ : check)
    for (int64_t i = 0; i < n; ++i) {
        const Real moved = w[i] - std::copysign(distance(i, std::fabs(w[i])), w[i]);
        check += moved * 0;
        w[i] = moved;
    }
    return check;
}

// The largest inverse of a weight that is not zero: zeros stay zero, and the inverses of dead weights are large.
template <typename Real>
Real largest_inverse(const Real *w, const Real *p, int64_t n) {
    Real largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; ++i) largest = most(largest, p[i] * Real(w[i] != 0));
    return largest;
}

// The proximal step k p_i of a penalty on each weight, by its quick formula where that is valid for the whole chunk.
template <typename Real, typename Penalty>
double move_in_metric(Real *w, const Real *p, int64_t n, const Penalty &penalty, Real k) {
    const auto exact = [=](int64_t i, Real m) { return penalty.at(k * p[i])(m); };
    if constexpr (Penalty::has_quick)
        if (penalty.is_quick(double(k) * largest_inverse(w, p, n)))
            return move(w, n, [=](int64_t i, Real m) { return penalty.quick(k * p[i])(m); });
    return move(w, n, exact);
}

// The proximal step of a scalar penalty on each of `n` weights. Without a metric p is nullptr.
template <typename Real>
double single_step(Real *w, const Real *p, int64_t n, const Term &term, double k) {
    return with_penalty<Real>(term, [=](const auto penalty) -> double {
        using Penalty = std::decay_t<decltype(penalty)>;
        if (p == nullptr) {
            if constexpr (Penalty::has_quick)
                if (penalty.is_quick(k))
                    return move(w, n, [quick = penalty.quick(k)](int64_t, Real m) { return quick(m); });
            return move(w, n, [shrinkage = penalty.at(k)](int64_t, Real m) { return shrinkage(m); });
        }
        double check = 0;
        for (int64_t first = 0; first < n; first += quick_chunk)
            check += move_in_metric(w + first, p + first, least(quick_chunk, n - first), penalty, Real(k));
        return check;
    });
}

template <typename Real>
class Tile {
  public:
    const int64_t count, taps;

    Tile(const Weight &weight, const Step &step, int64_t block, int64_t first, int64_t count)
        : count(count), taps(weight.taps), weight(weight), step(step), stride(weight.groups * weight.taps),
          start(block * weight.rows * stride + first * weight.taps), held(weight.rows == 1 && count * taps <= chunk) {}

    double k(const Term &term) const { return term.coefficient * step.size; }
    bool has_metric() const { return weight.metric_kind != euclidean; }

    // action(weights, inverses, index of the first group, n) for each chunk. A chunk has complete groups, or is a part of
    // the only group. Without a metric `inverses` is nullptr.
    template <typename Action>
    void for_chunks(Action action) {
        for (int64_t row = 0; row < weight.rows; ++row)
            for (int64_t first = 0; first < count * taps; first += chunk) {
                const int64_t offset = start + row * stride + first, n = least(chunk, count * taps - first);
                if (has_metric() && !(held && p != nullptr)) p = inverses<Real>(weight, step, offset, n, space);
                action(static_cast<Real *>(step.data) + offset, p, first / taps, n);
            }
    }

    // action(weight, inverse) for each weight of one group, in memory order; the inverse is 1 without a metric.
    template <typename Action>
    void for_members(int64_t group, Action action) {
        for (int64_t row = 0; row < weight.rows; ++row)
            for (int64_t first = 0; first < taps; first += chunk) {
                const int64_t offset = start + row * stride + group * taps + first, n = least(chunk, taps - first);
                const Real *const own = has_metric() ? inverses<Real>(weight, step, offset, n, spare) : nullptr;
                Real *const w = static_cast<Real *>(step.data) + offset;
                for (int64_t i = 0; i < n; ++i) action(w[i], own ? own[i] : Real(1));
            }
    }

  private:
    const Weight &weight;
    const Step &step;
    const int64_t stride, start;
    const bool held;  // a tile of one chunk keeps its inverses from one sweep to the next
    const Real *p = nullptr;
    Real space[chunk], spare[chunk];
};

}  // namespace gossamer
