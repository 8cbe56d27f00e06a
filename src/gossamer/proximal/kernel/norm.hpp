// The proximal step of k phi(||x||) on a group in a diagonal metric:
//
//     x = argmin_x  phi(||x||) + sum_i (x_i - w_i)^2 / (2 k p_i),    x_i = w_i rho / (rho + p_i)
//
// with one number rho per group, its stiffness: rho = 0 for x = 0, infinite for x = w. With y(rho) = ||w / (rho + p)|| the
// norm of x is r = rho y, and stationary points solve y = k phi'(r).
//
// As a function of r the second term is convex. Its curvature is smallest at r = ||w||, where it is 1 / (k s) with the mean
// s = sum w^2 p / sum w^2. If phi'' >= -1 / (k s) everywhere, there is only one stationary point, the minimum, and x = 0 if
// y(0) <= k phi'(0). Otherwise there may be several, and the best one on a grid is refined.
//
// Usually rho is much larger than the p_i. Then y^2 = (M0 - 2 M1 / rho + 3 M2 / rho^2 - 4 M3 / rho^3 + ...) / rho^2 with
// the moments M_j = sum w^2 p^j, which one sweep accumulates. The series alternates, so its last term bounds the
// error. If the bound is too large, the members of the group are gathered and the sums evaluated exactly.

#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "power.hpp"
#include "table.hpp"

namespace gossamer {

constexpr int moment_count = 4;

// phi and its derivatives for r > 0
struct Profile {
    Kind kind;
    double first, second;
    explicit Profile(const Term &term) : kind(Kind(term.kind)), first(term.first), second(term.second) {}

    double value(double r) const {
        const double a = first, knee = first, gamma = second;
        switch (kind) {
            case l0: return r > 0;
            case l1: return r;
            case l2: return r * r / 2;
            case transformed_l1: return (a + 1) * r / (a + r);
            case scad:
                if (r <= knee) return knee * r;
                if (r < gamma * knee) return (2 * gamma * knee * r - r * r - knee * knee) / (2 * (gamma - 1));
                return knee * knee * (gamma + 1) / 2;
            case mcp: return r <= gamma * knee ? knee * r - r * r / (2 * gamma) : gamma * knee * knee / 2;
            case logarithm: return std::log1p(a * r) / std::log1p(a);
            case capped_l1: return least(r, a);
            default: return std::pow(r, first);
        }
    }

    double slope(double r) const {
        const double a = first, knee = first, gamma = second;
        switch (kind) {
            case l0: return 0;
            case l1: return 1;
            case l2: return r;
            case transformed_l1: return (a + 1) / (a + r) * (a / (a + r));
            case scad:
                if (r <= knee) return knee;
                return r < gamma * knee ? (gamma * knee - r) / (gamma - 1) : 0;
            case mcp: return r < gamma * knee ? knee - r / gamma : 0;
            case logarithm: return a / (1 + a * r) / std::log1p(a);
            case capped_l1: return r < a;
            default: return first * std::pow(r, first - 1);
        }
    }

    double curvature(double r) const {
        const double a = first, knee = first, gamma = second;
        switch (kind) {
            case l2: return 1;
            case transformed_l1: return -2 * slope(r) / (a + r);
            case scad: return r > knee && r < gamma * knee ? -1 / (gamma - 1) : 0;
            case mcp: return r < gamma * knee ? -1 / gamma : 0;
            case logarithm: return -a * slope(r) / (1 + a * r);
            case lp: return (first - 1) * slope(r) / r;
            default: return 0;
        }
    }

    // the largest of -phi''
    double concavity() const {
        switch (kind) {
            case l1:
            case l2: return 0;
            case transformed_l1:
            case logarithm: return -curvature(0);
            case scad: return 1 / (second - 1);
            case mcp: return 1 / second;
            default: return std::numeric_limits<double>::infinity();
        }
    }
};

struct Length {
    double y, slope;  // y(rho) and its derivative
};

struct Moments {
    double of[moment_count];

    Length at(double rho) const {
        const double z = 1 / rho, m0 = of[0], m1 = of[1] * z, m2 = of[2] * z * z, m3 = of[3] * z * z * z;
        const double y = std::sqrt(most(m0 - 2 * m1 + 3 * m2 - 4 * m3, 0.0)) * z;
        return {y, -(m0 - 3 * m1 + 6 * m2 - 10 * m3) * z * z * z / y};
    }
    double error(double rho) const { return 4 * of[3] / (of[0] * rho * rho * rho); }
    double norm() const { return std::sqrt(of[0]); }
    double mean() const { return of[1] / of[0]; }
    bool finite() const { return std::isfinite(of[0] + of[1] + of[2] + of[3]); }
};

// The weights of one group that are not zero and have a step.
struct Members {
    std::vector<double> squares, inverses;

    void clear() {
        squares.clear();
        inverses.clear();
    }
    void add(double w, double inverse) {
        if (w == 0 || inverse == 0) return;
        squares.push_back(w * w);
        inverses.push_back(inverse);
    }
    template <typename Part>
    double sum(Part part) const {
        const double *const w2 = squares.data(), *const p = inverses.data();
        double total = 0;
#pragma omp simd reduction(+ : total)
        for (std::size_t i = 0; i < squares.size(); ++i) total += part(w2[i], p[i]);
        return total;
    }
    Moments moments() const {
        return {{sum([](double w2, double) { return w2; }), sum([](double w2, double p) { return w2 * p; }),
                 sum([](double w2, double p) { return w2 * p * p; }), sum([](double w2, double p) { return w2 * p * p * p; })}};
    }
    Length at(double rho) const {
        const double y = std::sqrt(sum([=](double w2, double p) { return w2 / ((rho + p) * (rho + p)); }));
        return {y, -sum([=](double w2, double p) { return w2 / ((rho + p) * (rho + p) * (rho + p)); }) / y};
    }
};

// The root of y = k phi'(r) if there is only one: Newton's method on the reciprocals, which are nearly linear in rho (linear
// for l1 and equal p), safeguarded by a bracket that is halved if a step leaves it.
template <typename Group>
double only_root(const Profile &phi, double k, double norm, double mean, const Group &group, double tolerance) {
    double low = 0, high = norm / (k * phi.slope(norm));
    const double near = norm - k * mean * phi.slope(norm) / (1 + k * mean * phi.curvature(norm));
    double rho = near > 0 ? near / (k * phi.slope(near)) : high / 2;
    for (int i = 0; i < 200 && low < high; ++i) {
        const Length length = group.at(rho);
        const double r = rho * length.y, pull = k * phi.slope(r);
        (length.y > pull ? low : high) = rho;
        const double reciprocal = 1 / length.y - 1 / pull;
        const double growth = k * phi.curvature(r) * (length.y + rho * length.slope) / (pull * pull);
        double next = rho - reciprocal / (growth - length.slope / (length.y * length.y));
        const double change = (next - rho) / rho;  // Newton's method squares it, up to a factor, in the next iteration
        if (16 * change * change <= tolerance) return next;
        if (!(next > low && next < high)) next = low > 0 ? std::sqrt(low * high) : high / 16;
        if (!(std::fabs(next - rho) > tolerance * rho)) return next;
        rho = next;
    }
    return rho;
}

// The best of x = 0, x = w and the minima between them, as `Group.kernel` finds it.
inline double best_of_all(const Profile &phi, double k, double norm, const Members &members) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    double smallest = infinite, largest = 0;
    for (const double p : members.inverses) {
        smallest = least(smallest, p);
        largest = most(largest, p);
    }
    const auto cost = [&](double rho) {
        const double distance = members.sum([=](double w2, double p) { return w2 * p / ((rho + p) * (rho + p)); });
        return phi.value(rho * members.at(rho).y) + distance / (2 * k);
    };
    const auto falls = [&](double rho) {  // with r, so that rho is below a minimum
        const double y = members.at(rho).y;
        return y > k * phi.slope(rho * y);
    };
    constexpr int points = 64;  // from x = w to x = 0, to rounding
    const double pull = k * phi.slope(norm);
    const double first = std::log(most(1e6 * largest, pull > 0 ? 4 * norm / pull : 0)), last = std::log(1e-6 * smallest);
    const double width = (last - first) / (points - 1);
    double stiff = infinite, best_cost = infinite, before_cost = infinite;  // stiff: log rho
    bool before = true;
    for (int i = 0; i < points; ++i) {
        const double rho = std::exp(first + i * width), own_cost = cost(rho);
        const bool own = falls(rho);
        if (own && !before && least(own_cost, before_cost) < best_cost) {
            best_cost = least(own_cost, before_cost);
            stiff = first + (i - 1) * width;
        }
        before = own, before_cost = own_cost;
    }
    const bool found = best_cost < infinite;
    double rho = 0;
    if (found) {
        double soft = stiff + width;
        for (int i = 0; i < 60; ++i) {
            const double middle = (soft + stiff) / 2;
            (falls(std::exp(middle)) ? soft : stiff) = middle;
        }
        rho = std::exp((soft + stiff) / 2);
    }
    const double at_moved = found ? cost(rho) : infinite;
    const double at_w = pull > 0 && found ? infinite : phi.value(norm);  // where phi has a slope, w is never best
    const double at_zero = members.sum([](double w2, double p) { return w2 / p; }) / (2 * k);
    if (at_zero <= least(at_moved, at_w)) return 0;
    return at_moved < at_w ? rho : infinite;
}

// rho of one group from its members, exactly
inline double exact_stiffness(const Profile &phi, double k, const Members &members) {
    const Moments moments = members.moments();
    const double norm = moments.norm(), mean = moments.mean();
    if (!(k * mean * phi.concavity() < 1)) return best_of_all(phi, k, norm, members);
    if (phi.slope(norm) == 0) return std::numeric_limits<double>::infinity();
    const double at_zero = std::sqrt(members.sum([](double w2, double p) { return w2 / (p * p); }));
    if (at_zero <= k * phi.slope(0)) return 0;
    return only_root(phi, k, norm, mean, members, 1e-15);
}

// rho of one group, from its moments where they suffice; `gather()` gives its members.
template <typename Gather>
double stiffness(const Profile &phi, double k, const Moments &moments, double tolerance, Gather gather) {
    if (k == 0) return std::numeric_limits<double>::infinity();
    if (phi.kind == l2) return 1 / k;
    if (moments.of[0] == 0) return 0;
    const double norm = moments.norm(), mean = moments.mean();
    // false if a moment has overflowed
    const bool expands = k * mean * phi.concavity() < 1 && norm > k * mean * phi.slope(0) && phi.slope(norm) > 0;
    if (expands && moments.finite()) {
        const double rho = only_root(phi, k, norm, mean, moments, tolerance / 4);
        if (moments.error(rho) <= tolerance) return rho;
    }
    return exact_stiffness(phi, k, gather());
}

}  // namespace gossamer
