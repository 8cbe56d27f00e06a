// The diagonal metric of an adaptive optimizer: weight i takes a step of size * inverse_i, inverse_i = 1 / d_i.
//
//     root    d_i = sqrt(v_i * correction) + eps, where v are the second moments of the optimizer; inverse_i = 0 if v_i = 0
//     given   the inverses themselves
//
// inverse_i = 0 marks a weight without a gradient so far. It does not move and is not a member of its group.

#pragma once

#include <cmath>

#include "table.hpp"

namespace gossamer {

// The inverses of `n` consecutive weights: computed into `space`, or at their own place.
template <typename Real>
const Real *inverses(const Weight &weight, const Step &step, int64_t offset, int64_t n, Real *space) {
    const Real *const metric = static_cast<const Real *>(step.metric) + offset;
    if (weight.metric_kind == given) return metric;
    const Real correction = Real(step.correction), eps = Real(step.eps);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i)
        space[i] = metric[i] > 0 ? 1 / (std::sqrt(metric[i] * correction) + eps) : Real(0);
    return space;
}

}  // namespace gossamer
