// The arguments of the kernel: one `Weight` per tensor, built once, and one `Step` per tensor, written at every call.
// `gossamer.proximal.table` declares the same records.

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
    exclusive_of_input,  // `Exclusive(exact=False)`
};

enum MetricKind : int32_t { euclidean, root, given };

constexpr int series_length = 24;

struct Term {
    int32_t kind;
    int32_t grouped;               // 0: on each weight; 1: on each group
    double first, second;          // parameters of the penalty, in the order of its dataclass
    double coefficient;            // of the term, times the scale of the rule
    double series[series_length];  // for `lp`, see shrinkage.hpp
};

struct Weight {
    int64_t blocks, rows, groups, taps;
    int64_t tile;  // groups per tile
    int32_t is_double, metric_kind;
    Term terms[2];  // applied in succession; the second may be absent
};

struct Step {
    void *data;              // the weight
    const void *metric;      // same size and order as the weight, see metric.hpp
    double size;             // strength times the step size of the optimizer
    double correction, eps;  // for the metric `root`
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
