// The proximal step of penalties on units, whose weights are slices of several tensors, in two passes over the weights.
//
//     first pass    the element-wise term; sums of squares of each unit, and of each block of rows that keeps its norm
//     in between    the factor of each unit, from its sums over all tensors
//     second pass   the weights times these factors; zeros for what follows a dead unit; the norms restored
//
// A tensor lies in memory as [rows][columns][taps]. Units that it holds run along its rows or columns, as do those that it
// follows. The work is split into parts, ranges of rows, which do not depend on the number of threads; their sums are added
// in a fixed order. `gossamer.proximal.unit_table` declares the same records; `gossamer.proximal.units` is the plain
// implementation.

#pragma once

#include <cmath>
#include <limits>

#include "metric.hpp"
#include "norm.hpp"
#include "table.hpp"
#include "tile.hpp"

namespace gossamer {

constexpr int sum_count = moment_count + 1;  // in a metric: the moments, and the squares of weights that wait

struct UnitTensor {
    Weight weight;  // of which the first term (element-wise, or absent), the precision and the kind of metric are used
    int64_t rows, columns, taps;
    const int32_t *units;     // the unit at each row or column that the tensor holds, -1 for none; may be nullptr
    const int32_t *followed;  // likewise, of units that the tensor follows
    const int64_t *blocks;    // the block of each row, ascending; nullptr if norms are not kept
    double *norms;            // squared, of the rows before the step
    double *sums;             // of the rows, if they hold units: [sum][row]
    void *factors;            // of the columns and taps, if they hold units; in the precision of the weights
    int32_t holds_columns, follows_columns;
};

struct Part {
    int64_t tensor, first, last;  // rows; no block is split
    void *sums;                   // of the columns and taps, if columns hold units: [sum][column][tap], like the weights
};

struct UnitMember {
    int32_t tensor, index;  // along the axis that holds
};

struct UnitGroups {
    Term term;
    int64_t count;
    const double *coefficients;
    double *totals;  // [sum][unit]
    double *results;  // the shrinkage over the norm; in a metric the stiffness, see norm.hpp
    int32_t *dead;
    const int64_t *starts;  // of the members of each unit, count + 1
    const UnitMember *members;
    int32_t in_metric;
};

// action(first, n, inverses) for chunks of a row; without a metric `inverses` is nullptr
template <typename Real, typename Action>
void for_row(const UnitTensor &tensor, const Step &step, int64_t row, Action action) {
    Real space[chunk];
    const int64_t length = tensor.columns * tensor.taps;
    for (int64_t first = 0; first < length; first += chunk) {
        const int64_t n = least(chunk, length - first);
        const Real *const p = tensor.weight.metric_kind == euclidean
                                  ? nullptr
                                  : inverses<Real>(tensor.weight, step, row * length + first, n, space);
        action(first, n, p);
    }
}

template <typename Real>
double sum_of_squares(const Real *w, int64_t n) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += double(w[i]) * double(w[i]);
    return total;
}

// sums[j * stride + i] += w_i^2 p_i^j, where p_i = size * inverse_i > 0; the last sum has the weights that wait
template <typename Real>
void add_moments_at(Real *sums, int64_t stride, const Real *w, const Real *p, Real size, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        const Real step = size * (p ? p[i] : Real(1)), square = w[i] * w[i];
        Real part = step > 0 ? square : Real(0);
        sums[moment_count * stride + i] += square - part;
        for (int j = 0; j < moment_count; ++j, part *= step) sums[j * stride + i] += part;
    }
}

// the same for weights of one unit: sums[j] += sum_i w_i^2 p_i^j
template <typename Real>
void add_moments_of(double *sums, const Real *w, const Real *p, Real size, int64_t n) {
    Real m0 = 0, m1 = 0, m2 = 0, m3 = 0, waiting = 0;
#pragma omp simd reduction(+ : m0, m1, m2, m3, waiting)
    for (int64_t i = 0; i < n; ++i) {
        const Real step = size * (p ? p[i] : Real(1)), square = w[i] * w[i];
        Real part = step > 0 ? square : Real(0);
        waiting += square - part;
        m0 += part;
        m1 += part *= step;
        m2 += part *= step;
        m3 += part *= step;
    }
    sums[0] += m0, sums[1] += m1, sums[2] += m2, sums[3] += m3, sums[moment_count] += waiting;
}

template <typename Real>
double first_pass(const UnitTensor &tensor, const Step &step, const Part &part, bool in_metric) {
    const Term &term = tensor.weight.terms[0];
    const int64_t length = tensor.columns * tensor.taps;
    const Real size = Real(step.size);
    Real *const column_sums = static_cast<Real *>(part.sums);
    double check = 0;
    if (tensor.units && tensor.holds_columns) {
        const int64_t all = (in_metric ? sum_count : 1) * length;
        for (int64_t i = 0; i < all; ++i) column_sums[i] = 0;
    }
    for (int64_t row = part.first; row < part.last; ++row) {
        Real *const data = static_cast<Real *>(step.data) + row * length;
        if (tensor.blocks) tensor.norms[row] = sum_of_squares(data, length);
        double own[sum_count] = {};
        for_row<Real>(tensor, step, row, [&](int64_t first, int64_t n, const Real *p) {
            Real *const w = data + first;
            if (term.kind != absent) check += single_step(w, p, n, term, term.coefficient * step.size);
            if (!tensor.units) return;
            if (tensor.holds_columns && in_metric) {
                add_moments_at(column_sums + first, length, w, p, size, n);
            } else if (tensor.holds_columns) {
                Real *const sums = column_sums + first;
#pragma omp simd
                for (int64_t i = 0; i < n; ++i) sums[i] += w[i] * w[i];
            } else if (in_metric) {
                add_moments_of(own, w, p, size, n);
            } else {
                own[0] += sum_of_squares(w, n);
            }
        });
        if (tensor.units && !tensor.holds_columns)
            for (int j = 0; j < (in_metric ? sum_count : 1); ++j) tensor.sums[j * tensor.rows + row] = own[j];
    }
    return check;
}

// The sums of all parts and tensors, added to those of their units in a fixed order.
template <typename Real>
void add_up_units(const UnitTensor *tensors, int64_t count, const Part *parts, int64_t part_count,
                         const UnitGroups &groups) {
    const int sums = groups.in_metric ? sum_count : 1;
    for (int64_t i = 0; i < sums * groups.count; ++i) groups.totals[i] = 0;
    for (int64_t t = 0; t < count; ++t) {
        const UnitTensor &tensor = tensors[t];
        if (!tensor.units || tensor.holds_columns) continue;
        for (int j = 0; j < sums; ++j)
            for (int64_t row = 0; row < tensor.rows; ++row)
                if (tensor.units[row] >= 0) groups.totals[j * groups.count + tensor.units[row]] += tensor.sums[j * tensor.rows + row];
    }
    for (int64_t i = 0; i < part_count; ++i) {
        const UnitTensor &tensor = tensors[parts[i].tensor];
        if (!tensor.units || !tensor.holds_columns) continue;
        const Real *own = static_cast<const Real *>(parts[i].sums);
        for (int j = 0; j < sums; ++j)
            for (int64_t column = 0; column < tensor.columns; ++column, own += tensor.taps) {
                if (tensor.units[column] < 0) continue;
                double total = 0;
                for (int64_t tap = 0; tap < tensor.taps; ++tap) total += own[tap];
                groups.totals[j * groups.count + tensor.units[column]] += total;
            }
    }
}

// The weights of one unit and their steps, gathered from all tensors.
template <typename Real>
void gather_members(Members &members, const UnitTensor *tensors, const Step *steps, const UnitGroups &groups, int64_t unit) {
    members.clear();
    for (int64_t m = groups.starts[unit]; m < groups.starts[unit + 1]; ++m) {
        const UnitTensor &tensor = tensors[groups.members[m].tensor];
        const Step &step = steps[groups.members[m].tensor];
        const int64_t index = groups.members[m].index, length = tensor.columns * tensor.taps;
        const int64_t rows = tensor.holds_columns ? tensor.rows : 1, n = tensor.holds_columns ? tensor.taps : length;
        const int64_t start = index * n;  // of a slice: in a row, or of the row itself
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t i = 0; i < n; ++i) {
                const int64_t at = row * length + start + i;
                Real space;
                const Real *const p = tensor.weight.metric_kind == euclidean
                                          ? nullptr
                                          : inverses<Real>(tensor.weight, step, at, 1, &space);
                members.add(static_cast<const Real *>(step.data)[at], step.size * (p ? double(*p) : 1.0));
            }
    }
}

template <typename Real>
double unit_factors(const UnitTensor *tensors, const Step *steps, const UnitGroups &groups) {
    double check = 0;
    if (!groups.in_metric) {
        with_penalty<double>(groups.term, [&](const auto penalty) {
            for (int64_t u = 0; u < groups.count; ++u) {
                const double norm = std::sqrt(groups.totals[u]), k = groups.coefficients[u] * steps[0].size;
                check += groups.totals[u] * 0;
                groups.results[u] = norm > 0 ? penalty.at(k)(norm) / norm : double(k > 0);
                groups.dead[u] = groups.starts[u] < groups.starts[u + 1] && (norm == 0 || Real(groups.results[u]) == Real(1));
            }
        });
        return check;
    }
    Members members;
    const Profile phi(groups.term);
    const double tolerance = sizeof(Real) == sizeof(float) ? 2e-6 : 1e-15;
    for (int64_t u = 0; u < groups.count; ++u) {
        const auto sum = [&](int j) { return groups.totals[j * groups.count + u]; };
        check += sum(0) * 0;
        const auto gather = [&]() -> const Members & {
            gather_members<Real>(members, tensors, steps, groups, u);
            return members;
        };
        const Moments moments{{sum(0), sum(1), sum(2), sum(3)}};
        groups.results[u] = stiffness(phi, groups.coefficients[u], moments, tolerance, gather);
        groups.dead[u] = groups.starts[u] < groups.starts[u + 1] && sum(moment_count) == 0 &&
                         (groups.results[u] == 0 || sum(0) == 0);
    }
    return check;
}

// The results of the units, at each column and tap of the tensors whose columns hold them.
template <typename Real>
void spread_factors(const UnitTensor &tensor, const UnitGroups &groups) {
    if (!tensor.units || !tensor.holds_columns) return;
    const double none = groups.in_metric ? std::numeric_limits<double>::infinity() : 0.0;
    Real *factor = static_cast<Real *>(tensor.factors);
    for (int64_t column = 0; column < tensor.columns; ++column) {
        const Real own = Real(tensor.units[column] < 0 ? none : groups.results[tensor.units[column]]);
        for (int64_t tap = 0; tap < tensor.taps; ++tap) *factor++ = own;
    }
}

// w <- w - w r without a metric, w <- w - w p / (rho + p) with one; factor(i) is r or rho
template <typename Real, typename Factor>
void apply_factors(Real *w, const Real *p, int64_t n, Real size, bool in_metric, const Factor factor) {
    if (!in_metric) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) w[i] -= w[i] * factor(i);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        const Real step = size * (p ? p[i] : Real(1));
        w[i] -= step > 0 ? w[i] * (step / (factor(i) + step)) : Real(0);
    }
}

template <typename Real>
void second_pass(const UnitTensor &tensor, const Step &step, const Part &part, const UnitGroups &groups) {
    const int64_t length = tensor.columns * tensor.taps;
    const bool in_metric = groups.in_metric;
    const Real size = Real(step.size);
    double after = 0, before = 0;
    for (int64_t row = part.first, start = row; row < part.last; ++row) {
        Real *const data = static_cast<Real *>(step.data) + row * length;
        const int32_t own = tensor.units && !tensor.holds_columns ? tensor.units[row] : -1;
        if (tensor.units && (tensor.holds_columns || own >= 0))
            for_row<Real>(tensor, step, row, [&](int64_t first, int64_t n, const Real *p) {
                const Real *const factors = static_cast<const Real *>(tensor.factors) + first;
                if (tensor.holds_columns)
                    apply_factors(data + first, p, n, size, in_metric, [=](int64_t i) { return factors[i]; });
                else
                    apply_factors(data + first, p, n, size, in_metric, [f = Real(groups.results[own])](int64_t) { return f; });
            });
        if (tensor.followed && !tensor.follows_columns && tensor.followed[row] >= 0 && groups.dead[tensor.followed[row]])
            for (int64_t i = 0; i < length; ++i) data[i] = 0;
        if (tensor.followed && tensor.follows_columns)
            for (int64_t column = 0; column < tensor.columns; ++column)
                if (tensor.followed[column] >= 0 && groups.dead[tensor.followed[column]])
                    for (int64_t i = column * tensor.taps; i < (column + 1) * tensor.taps; ++i) data[i] = 0;
        if (!tensor.blocks) continue;
        after += sum_of_squares(data, length);
        before += tensor.norms[row];
        if (row + 1 < part.last && tensor.blocks[row + 1] == tensor.blocks[row]) continue;
        const Real restore = Real(after > 0 ? std::sqrt(before / after) : 1.0);
        Real *const all = static_cast<Real *>(step.data) + start * length;
#pragma omp simd
        for (int64_t i = 0; i < (row + 1 - start) * length; ++i) all[i] *= restore;
        after = before = 0;
        start = row + 1;
    }
}

template <typename Real>
int32_t unit_step(const UnitTensor *tensors, const Step *steps, int64_t count, const Part *parts, int64_t part_count,
                  const UnitGroups &groups, int32_t threads) {
    double check = 0;
#pragma omp parallel num_threads(threads) reduction(+ : check) if (threads > 1)
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < part_count; ++i)
            check += first_pass<Real>(tensors[parts[i].tensor], steps[parts[i].tensor], parts[i], groups.in_metric);
#pragma omp single
        {
            add_up_units<Real>(tensors, count, parts, part_count, groups);
            check += unit_factors<Real>(tensors, steps, groups);
            for (int64_t t = 0; t < count; ++t) spread_factors<Real>(tensors[t], groups);
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < part_count; ++i) {
            const UnitTensor &tensor = tensors[parts[i].tensor];
            if (tensor.units || tensor.followed || tensor.blocks)
                second_pass<Real>(tensor, steps[parts[i].tensor], parts[i], groups);
        }
    }
    return std::isfinite(check);
}

}  // namespace gossamer
