// Some neighbouring groups of one block: a weight is [blocks][rows][groups][taps], a tile all rows of `count` groups.

#pragma once

#include "metric.hpp"
#include "shrinkage.hpp"
#include "table.hpp"

namespace gossamer {

constexpr int64_t piece = 4096;         // weights of a row that are worked on together; they stay in the cache
constexpr int64_t quick_piece = 512;    // weights that are stepped again where the quick formula does not hold
constexpr int64_t largest_tile = 1024;  // groups; bounds what a tile keeps of each group, on the stack

// w <- w - sign(w) distance(i, |w|). Returns a number that is not finite where a weight is not.
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

// The same with a quick formula, and with the other one where the first leaves something that is not finite.
template <typename Real, typename Quick, typename Distance>
double move_quickly(Real *w, int64_t n, const Quick quick, const Distance distance) {
    double check = 0;
    Real before[quick_piece];
    for (int64_t first = 0; first < n; first += quick_piece) {
        const int64_t length = least(quick_piece, n - first);
        for (int64_t i = 0; i < length; ++i) before[i] = w[first + i];
        Real own = move(w + first, length, [=](int64_t i, Real m) { return quick(first + i, m); });
        if (!std::isfinite(own)) {
            for (int64_t i = 0; i < length; ++i) w[first + i] = before[i];
            own = move(w + first, length, [=](int64_t i, Real m) { return distance(first + i, m); });
        }
        check += own;
    }
    return check;
}

// The proximal step of a scalar penalty on each of `n` weights; p = nullptr: the same step for all.
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
        const Real own = Real(k);
        const auto shrinkage = [=](int64_t i, Real m) { return penalty.at(own * p[i])(m); };
        if constexpr (Penalty::has_quick)
            return move_quickly(w, n, [=](int64_t i, Real m) { return penalty.quick(own * p[i])(m); }, shrinkage);
        else
            return move(w, n, shrinkage);
    });
}

template <typename Real>
class Tile {
  public:
    const int64_t count, taps;

    Tile(const Weight &weight, const Step &step, int64_t block, int64_t first, int64_t count)
        : count(count), taps(weight.taps), weight(weight), step(step), stride(weight.groups * weight.taps),
          start(block * weight.rows * stride + first * weight.taps), held(weight.rows == 1 && count * taps <= piece) {}

    double k(const Term &term) const { return term.coefficient * step.size; }
    bool has_metric() const { return weight.metric_kind != euclidean; }

    // action(weights, inverses, number of the first group, n), piece by piece. A piece holds whole groups, or a part of
    // the only one; without a metric `inverses` is nullptr.
    template <typename Action>
    void for_pieces(Action action) {
        for (int64_t row = 0; row < weight.rows; ++row)
            for (int64_t first = 0; first < count * taps; first += piece) {
                const int64_t offset = start + row * stride + first, n = least(piece, count * taps - first);
                if (has_metric() && !(held && p != nullptr)) p = inverses<Real>(weight, step, offset, n, space);
                action(static_cast<Real *>(step.data) + offset, p, first / taps, n);
            }
    }

    // action(weight, inverse) for each weight of one group, in the order of memory; the inverse is 1 without a metric.
    template <typename Action>
    void for_members(int64_t group, Action action) {
        for (int64_t row = 0; row < weight.rows; ++row)
            for (int64_t first = 0; first < taps; first += piece) {
                const int64_t offset = start + row * stride + group * taps + first, n = least(piece, taps - first);
                const Real *const own = has_metric() ? inverses<Real>(weight, step, offset, n, spare) : nullptr;
                Real *const w = static_cast<Real *>(step.data) + offset;
                for (int64_t i = 0; i < n; ++i) action(w[i], own ? own[i] : Real(1));
            }
    }

  private:
    const Weight &weight;
    const Step &step;
    const int64_t stride, start;
    const bool held;  // the one piece of the tile keeps its inverses from one sweep to the next
    const Real *p = nullptr;
    Real space[piece], spare[piece];
};

}  // namespace gossamer
