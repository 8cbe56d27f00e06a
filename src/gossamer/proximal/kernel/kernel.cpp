// The proximal steps of many weights in one call, in place.
//
// A weight lies in memory as [blocks][rows][groups][taps]. A group of weights is one (block, group) and holds all rows
// and taps: a matrix whose rows are the groups has rows = 1, one whose columns are the groups has taps = 1. Up to two terms
// are applied in succession: scalar penalties on weights, and penalties on groups.
//
// The work is split into tiles of consecutive groups. If a tile fits into the cache, its second sweep does not read from
// memory. No group is split between threads, so the result does not depend on their number.
//
// The formulas are those of gossamer.penalties; tests compare both.

#include <cmath>
#include <cstdint>

#include "groups.hpp"
#include "table.hpp"
#include "tile.hpp"
#include "units.hpp"

namespace gossamer {

// All terms on `count` groups of a block, starting at group `first`. The result is not finite if a weight is not.
template <typename Real>
double tile_step(const Weight &weight, const Step &step, int64_t block, int64_t first, int64_t count) {
    Tile<Real> tile(weight, step, block, first, count);
    const Term *const end = weight.terms + 2;
    double check = 0;
    for (const Term *term = weight.terms; term < end && term->kind != absent;) {
        const Term *const single = term->grouped ? nullptr : term++;
        if (term < end && term->kind != absent && term->grouped)
            check += group_step(tile, single, *term++);
        else
            tile.for_chunks([&](Real *w, const Real *p, int64_t, int64_t n) {
                check += single_step(w, p, n, *single, tile.k(*single));
            });
    }
    return check;
}

}  // namespace gossamer

// Returns 1 if all weights are finite, 0 if one may not be; squares of large weights may overflow.
extern "C" int32_t gossamer_step(const gossamer::Weight *weights, const gossamer::Step *steps, int64_t count,
                                 int32_t threads) {
    using namespace gossamer;
    double check = 0;
#pragma omp parallel num_threads(threads) reduction(+ : check) if (threads > 1)
    for (int64_t i = 0; i < count; ++i) {
        const Weight &weight = weights[i];
        const int64_t tiles = (weight.groups + weight.tile - 1) / weight.tile;
#pragma omp for schedule(static) nowait
        for (int64_t j = 0; j < weight.blocks * tiles; ++j) {
            const int64_t block = j / tiles, first = j % tiles * weight.tile;
            const int64_t groups = least(weight.tile, weight.groups - first);
            check += weight.is_double ? tile_step<double>(weight, steps[i], block, first, groups)
                                      : tile_step<float>(weight, steps[i], block, first, groups);
        }
    }
    return std::isfinite(check);
}

// The same for a regularizer with terms on units: all tensors have the same precision.
extern "C" int32_t gossamer_unit_step(const gossamer::UnitTensor *tensors, const gossamer::Step *steps, int64_t count,
                                      const gossamer::Part *parts, int64_t part_count, const gossamer::UnitGroups *groups,
                                      int32_t threads) {
    using namespace gossamer;
    return tensors[0].weight.is_double ? unit_step<double>(tensors, steps, count, parts, part_count, *groups, threads)
                                       : unit_step<float>(tensors, steps, count, parts, part_count, *groups, threads);
}
