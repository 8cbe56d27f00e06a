// What Python hands over: one `Weight` for each tensor, made once, and one `Step` for each, written at every call.
// `gossamer.proximal.table` has the same records.

#pragma once

#include <cstdint>

namespace gossamer {

enum Kind : int32_t {
    absent,
    l0,
    l1,
    l2,
    transformed_l1,
    scad,
    mcp,
    logarithm,
    capped_l1,
    lp,
    l1_minus_l2,
    exclusive,
    exclusive_of_input,  // the published approximation of `exclusive`
};

enum MetricKind : int32_t { euclidean, root, given };

constexpr int series_length = 24;

struct Term {
    int32_t kind;
    int32_t grouped;               // 0: on each weight; 1: on each group
    double first, second;          // the penalty's parameters, in the order of its dataclass
    double coefficient;            // of the term, times the scale of its rule
    double series[series_length];  // of `lp`, see power.hpp
};

struct Weight {
    int64_t blocks, rows, groups, taps;
    int64_t tile;  // groups in a tile
    int32_t is_double, metric_kind;
    Term terms[2];  // taken in succession; the second may be absent
};

struct Step {
    void *data;              // of the weight
    const void *metric;      // as long as the weight and in its order, see metric.hpp
    double size;             // strength times the step size of the optimizer
    double correction, eps;  // of the metric `root`
};

template <typename Real>
Real least(Real x, Real y) {
    return x < y ? x : y;
}

template <typename Real>
Real most(Real x, Real y) {
    return x > y ? x : y;
}

}  // namespace gossamer
