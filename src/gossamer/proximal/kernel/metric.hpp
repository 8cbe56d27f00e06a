// The diagonal metric of an adaptive optimizer: weight i takes the step  size * inverse_i,  inverse_i = 1 / d_i.
//
//     root    d_i = sqrt(v_i * correction) + eps, v the optimizer's second moments; 0 where v_i = 0
//     given   inverse_i as it stands
//
// inverse_i = 0 marks a weight that has had no gradient yet: it waits, and does not count in the norm of its group.

#pragma once

#include <cmath>

#include "table.hpp"

namespace gossamer {

// The inverses of `n` neighbouring weights: in `space`, where they have to be computed, or where they lie already.
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
